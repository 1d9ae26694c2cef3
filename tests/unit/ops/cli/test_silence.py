"""`silence add`: what is wrong is said before anything is written."""

import pytest
from typer.testing import CliRunner

from ops.cli.app import build
from ops.cli.errors import CliError

GIVEN = ["--reason", "maintenance", "--bootstrap", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "LABEL=PATTERN (or --all) must say what is silenced"),
        (["task=a", "--all"], "not both"),
        (["task"], "must be LABEL=PATTERN"),
        (["component=*"], "say that all are meant"),
        (["task=a", "--reason", " "], "--reason is empty"),
        (["task=a", "--author", ""], "--author is empty"),
        (["task=a", "--until", "-1h"], "--until must be after the begin and after now"),
        (["task=a", "--until", "end"], "is no time"),
        (["task=a", "--until", "soon"], "'soon' is no time"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], said: str) -> None:
    """As wrong usage, in the words of the command line; no broker is asked."""
    done = CliRunner().invoke(build(), ["silence", "add", *GIVEN, *arguments])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
    assert done.exception.exit_code == 2
