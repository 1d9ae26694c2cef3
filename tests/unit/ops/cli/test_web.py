"""`web` and `review`: what they refuse, and how they end."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ops.cli.errors import DAMAGED, FOUND, USAGE, CliError
from ops.cli.web import register
from ops.recording.export import export
from tests.unit.ops.recording.test_diagnosis import forget_a_partition, incident
from tests.unit.ops.view_samples import record_all, story


def run(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code, and what it says is wrong."""
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, CliError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "everywhere"), "give HOST:PORT"),
        (("--listen", "127.0.0.1:70000"), "give HOST:PORT"),
        (("--listen", "0.0.0.0:8440"), "needs --tls-cert and --tls-key"),
        (("--listen", "0.0.0.0:8440"), "needs --token-file"),
        (("--tls-cert", "x"), "go together"),
        (("--token-file", "/nowhere"), "--token-file /nowhere"),
        (("--faults-from", "yesterday"), "is no time"),
        (("--recording", "/nowhere"), "holds no recording"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments: tuple[str, ...], words: str) -> None:
    """Before anything is read; the sentence says what is missing."""
    code, said = run("web", "--bootstrap", "127.0.0.1:1", *arguments)
    assert code == USAGE
    assert words in said


def test_an_address_that_is_taken_is_named() -> None:
    """As for a second server."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = run("web", "--bootstrap", "127.0.0.1:1", "--listen", address)
    assert code == 3
    assert f"--listen {address}" in said


def test_a_review_ends_with_the_code_of_a_fault(tmp_path: Path) -> None:
    """In both forms; another form is refused."""
    record_all(tmp_path, story())
    for name in ("r.html", "r.md"):
        code, said = run("review", str(tmp_path), "--out", str(tmp_path / name))
        assert code == FOUND
        assert said.endswith("1 incident\n")
        assert "nothing gets through" in (tmp_path / name).read_text(encoding="utf-8")
    code, said = run("review", str(tmp_path), "--out", str(tmp_path / "r.pdf"))
    assert (code, "ends with .html or .md" in said) == (USAGE, True)


def test_verdicts_made_anew_of_a_damaged_recording_are_told_as_such(tmp_path: Path) -> None:
    """On standard error and by the exit code: it holds less than the recording."""
    export(incident(), tmp_path / "r")
    code, said = run("review", str(tmp_path / "r"), "--out", str(tmp_path / "r.md"))
    assert (code, "damaged" in said) == (FOUND, False)
    forget_a_partition(tmp_path / "r")
    code, said = run("review", str(tmp_path / "r"), "--out", str(tmp_path / "r.md"))
    assert code == DAMAGED
    assert said.count("probe.round.v1.avro: damaged at byte") == 1


def test_a_report_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    """Before the recording is read: verdicts that are made anew take minutes."""
    (tmp_path / "incident").mkdir()
    record_all(tmp_path / "incident", story())
    (tmp_path / "r.html").mkdir()
    for name, why in (("r.html", "is a folder"), ("gone/r.html", "there is no folder")):
        code, said = run("review", str(tmp_path / "incident"), "--out", str(tmp_path / name))
        assert code == USAGE
        assert why in said.replace("\n", " ")
        assert "made anew" not in said


def test_actions_are_for_the_live_page_only_and_an_empty_token_file_lets_nobody_in(
    tmp_path: Path,
) -> None:
    """As wrong usage, before anything is read."""
    (tmp_path / "token").write_text("\n")
    for arguments, words in (
        (("--recording", str(tmp_path), "--allow-actions"), "a recording stays as it is"),
        (("--bootstrap", "127.0.0.1:1", "--token-file", str(tmp_path / "token")), "is empty"),
    ):
        code, said = run("web", *arguments)
        assert (code, words in said) == (USAGE, True)
