"""A second `broker run` does not take the first one's place."""

import os
from pathlib import Path

import pytest

from ops.broker import announcement
from ops.broker.announcement import Announcement
from ops.cli import broker
from ops.cli.errors import ENVIRONMENT, CliError
from schemas.kafka.connection import discovered_bootstrap

pytestmark = pytest.mark.broker


def test_it_is_refused_while_the_first_answers(kafka_bootstrap: str, state_dir: Path) -> None:
    """The sentence names address and process; the first stays announced."""
    assert state_dir
    first = Announcement(bootstrap=kafka_bootstrap, pid=os.getpid(), data_dir="x")
    announcement.write(first)
    with pytest.raises(CliError, match=f"{kafka_bootstrap}.*process {os.getpid()}") as caught:
        broker.run()
    assert caught.value.exit_code == ENVIRONMENT
    assert discovered_bootstrap() == kafka_bootstrap
