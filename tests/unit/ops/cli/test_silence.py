"""`silence add`: what is wrong is said before anything is written."""

import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.cli.errors import CliError

REASON = ["--reason", "maintenance"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name what is silenced"),
        (["task=a", "--all"], "name what is silenced"),
        (["colour=red"], "labels are component, component_kind, kind"),
        (["task"], "must be LABEL=PATTERN"),
        (["task="], "must be LABEL=PATTERN"),
        (["component=*", "task=**"], "to silence every fault say --all"),
        (["component=?*"], "to silence every fault say --all"),
        (["severity=????*", "task=*"], "to silence every fault say --all"),
        (["task=a", "--reason", " "], "--reason is empty"),
        (["task=a", "--reason", "a" * 1_001], "1,001 characters, at most 1,000"),
        (["task=a", "--until", "-1h"], "after now"),
        (["task=a", "--from", "+2h", "--until", "+1h"], "after --from"),
        (["task=a", "--until", "+100d"], "at most 90 days"),
        (["task=a", "--until", "end"], "is no time"),
        (["task=a", "--until", "soon"], "'soon' is no time"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], said: str) -> None:
    """As wrong usage; no broker is asked."""
    done = CliRunner().invoke(build(), ["silence", "add", *REASON, *arguments])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
    assert done.exception.exit_code == 2
