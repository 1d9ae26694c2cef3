"""Diagnosers in another process and by name: the good, and those that break the contract."""

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena.baselines.catalogue import BASELINES, open_diagnoser
from arena.baselines.external import Command, accusation
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation, PluginError
from schemas.units import US_NS
from tests.unit.arena.baselines.made import UPLINK, window, with_fault


@pytest.fixture(scope="module")
def whole() -> Window:
    """Return a window with a cut uplink: a line of some 300 kB, more than a pipe holds."""
    return window(with_fault([UPLINK], loss=1.0))


@contextmanager
def script(path: Path, text: str, timeout_s: float = 20) -> Iterator[Command]:
    """Start a Python script as a diagnoser."""
    path.write_text(textwrap.dedent(text))
    command = Command(
        [sys.executable, "-u", str(path)], name="guest", timeout_s=timeout_s, grace_s=0.3
    )
    try:
        yield command
    finally:
        command.close()


def test_a_command_gets_windows_and_answers(tmp_path: Path, whole: Window) -> None:
    """One process for all windows: it can remember."""
    text = """
        import json, sys
        seen = 0
        for line in sys.stdin:
            window = json.loads(line)
            seen += 1
            lossy = [f for f in window["flows"] if f["lost"]]
            common = set.intersection(*(set(f["components"]) for f in lossy))
            link = [c for c in common if c.startswith("link:")][0]
            print(json.dumps([{"component_id": link, "kind": "connectivity", "score": seen}]))
    """
    with script(tmp_path / "guest.py", text) as command:
        first, second = command.observe(whole), command.observe(whole)
    assert first == [Accusation(component_id=UPLINK, kind="connectivity", score=1)]
    assert second[0].score == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import time; time.sleep(60)", "guest, window 0: no answer within 1 s"),
        ("import sys; sys.stdin.readline(); print('so what')", "no JSON: b'so what'"),
        ("import sys; sys.stdin.readline(); print('{}')", "no list of at most"),
        ("import sys; sys.stdin.readline(); print('[1]')", "no accusation: 1; wanted"),
        ("import sys; sys.stdin.readline(); print('[]\\n[]')", "more than one line"),
        ("import sys; sys.stdin.readline(); print('x' * 2_000_000)", "more than 1048576 bytes"),
        ("raise SystemExit(7)", "ended with exit code 7 without an answer"),
        ("raise RuntimeError('no licence')", "no licence"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "ended with exit code 3"),
    ],
)
def test_a_command_that_breaks_the_contract_is_told_how(
    tmp_path: Path, whole: Window, text: str, wanted: str
) -> None:
    """Hanging, garbage, too much, dead: an error that names the diagnoser and what it did."""
    # A hang shows after a second; an interpreter on a busy machine needs longer to start.
    timeout_s = 1 if "sleep" in text else 20
    with script(tmp_path / "guest.py", text, timeout_s) as command:
        with pytest.raises(PluginError, match="guest, window 0: ") as error:
            command.observe(whole)
        assert wanted in str(error.value)


def test_a_command_that_will_not_end_is_killed(tmp_path: Path, whole: Window) -> None:
    """Neither the end of its input nor SIGTERM impress it; `close` comes back all the same."""
    text = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdin.readline()
        print("[]")
        time.sleep(60)
    """
    with script(tmp_path / "guest.py", text) as command:
        assert command.observe(whole) == []


def test_a_command_that_is_not_there() -> None:
    """Told before the first window."""
    with pytest.raises(PluginError, match="cannot start 'no-such-program'"):
        open_diagnoser("no-such-program --fast")


class Own:
    """A class that plugs in."""

    name = "own"

    def observe(self, window: Window) -> list[Accusation]:
        """Accuse the first component."""
        return [Accusation(component_id=window.components[0][0], kind="packet_loss", score=1)]


class Wrong:
    """A class that does not."""


def test_a_class_plugs_in_by_name(whole: Window) -> None:
    """`module:Class`."""
    found = open_diagnoser(f"{__name__}:Own")
    assert found.name == "own"
    assert len(found.observe(whole)) == 1


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (f"{__name__}:Wrong", "it needs `name` and `observe"),
        (f"{__name__}:Missing", "AttributeError"),
        ("no_such_module:Own", "ModuleNotFoundError"),
        ("", "one of published, votes"),
        ("'unclosed", "No closing quotation"),
    ],
)
def test_what_cannot_plug_in_is_told_why(spec: str, wanted: str) -> None:
    """The spec and the reason."""
    with pytest.raises(PluginError, match=wanted):
        open_diagnoser(spec)


def test_every_baseline_is_fresh() -> None:
    """Two scenarios never share a look-back."""
    for name in BASELINES:
        assert open_diagnoser(name) is not open_diagnoser(name)
        assert open_diagnoser(name).name


def test_an_accusation_is_read_with_and_without_what_is_optional() -> None:
    """Anything unknown is refused: a typo would be lost otherwise."""
    row = {"component_id": "a", "kind": "packet_loss"}
    assert accusation(dict(row)) == Accusation(component_id="a", kind="packet_loss", score=1)
    full = accusation({**row, "score": 0.5, "also": ["b"]})
    assert (full.score, full.named) == (0.5, ("a", "b"))
    for extra in ({"scroe": 1}, {"also": [1]}, {"score": "high"}, {"kind": None}):
        with pytest.raises(ValueError, match="no accusation"):
            accusation({**row, **extra})


def test_units_are_what_they_say(whole: Window) -> None:
    """Round trips of some 16 µs in ns."""
    median = float(whole.quartiles_ns[0, 1])
    assert 10 * US_NS < median < 30 * US_NS
