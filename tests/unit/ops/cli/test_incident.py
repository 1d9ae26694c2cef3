"""`incident`: texts for people are checked before anything is written, and hide nothing."""

import pytest
from typer.testing import CliRunner

from ops.cli import incident
from ops.cli.app import build
from ops.cli.errors import CliError
from schemas.enums import NoteAction
from schemas.records import IncidentNote


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ack", "f-1", "--text", "a" * 1_001], "1,001 characters, at most 1,000"),
        (["close", "f-1", "--cause", ""], "--cause is empty"),
        (["comment", "f-1", " "], "the text is empty"),
    ],
)
def test_a_bad_text_is_named(arguments: list[str], said: str) -> None:
    """As wrong usage; no broker is asked."""
    where = ["--bootstrap", "127.0.0.1:1"]
    done = CliRunner().invoke(build(), ["incident", *arguments, *where])
    assert isinstance(done.exception, CliError)
    assert said in str(done.exception)
    assert done.exception.exit_code == 2


def test_a_note_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever may write a note writes text, no escape sequences."""
    note = IncidentNote(
        cluster="c", fault_id="f-1", note_id="n-1",
        action=NoteAction.COMMENT, noted_at=1, author="eve", text="a\x1b[31mb", cause=None,
    )  # fmt: skip
    incident._show([note], as_json=False)
    assert "a\\u001b[31mb" in capsys.readouterr().out
