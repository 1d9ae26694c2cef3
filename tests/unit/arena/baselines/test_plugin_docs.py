"""The examples of `docs/guide/arena.md` run as they stand there."""

import re
import sys
from pathlib import Path

import pytest

from arena.baselines.catalogue import BASELINES, open_diagnoser
from arena.baselines.external import Command
from arena.compare import run_scenario
from arena.scenarios.scenario import load
from arena.scoring import match, place_of
from tests import ROOT
from tests.unit.arena.baselines.made import UPLINK, window, with_fault
from tests.unit.arena.test_compare import SCENARIO

DOCS = (ROOT / "docs" / "guide" / "arena.md").read_text("utf-8")


def example(language: str, holding: str) -> str:
    """Return the one example in a language that holds a piece of text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.DOTALL | re.MULTILINE)
    (one,) = [text for text in found if holding in text]
    return str(one)


def test_the_scenario_loads(tmp_path: Path) -> None:
    """And names what it is said to name."""
    path = tmp_path / "one.toml"
    path.write_text(example("toml", "[fabric]"))
    scenario = load(path)
    assert (scenario.name, scenario.seed, scenario.fabric.hosts) == ("one-link", 7, 16)
    assert [h.kind for h in scenario.faults + scenario.confounders] == [
        "switch_port_down", "agent_crash",
    ]  # fmt: skip


def test_the_class_plugs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `module:Class`, over a whole scenario, with windows of its own length."""
    (tmp_path / "arena_docs_example.py").write_text(example("python", "class WorstComponent"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (result,) = run_scenario(SCENARIO, ["arena_docs_example:WorstComponent"])
    assert result.diagnoser == "worst component"
    ((fault, verdict),) = match(result.case.faults, result.case.verdicts).pairs
    assert place_of(fault, verdict) == 0
    sys.modules.pop("arena_docs_example")


def test_the_command_plugs_in(tmp_path: Path) -> None:
    """It finds the uplink in which all lossy 5-tuples meet."""
    path = tmp_path / "my_localizer.py"
    path.write_text(example("python", "for line in sys.stdin"))
    command = open_diagnoser(f"{sys.executable} {path}")
    assert isinstance(command, Command)
    try:
        assert command.observe(window(with_fault([]))) == []
        (said,) = command.observe(window(with_fault([UPLINK], loss=1.0)))
    finally:
        command.close()
    assert said.component_id == UPLINK


def test_running_and_reporting_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one small scenario and one baseline in place of the suite."""
    monkeypatch.chdir(tmp_path)
    text = example("python", "write_report(")
    text = text.replace('scenarios("smoke"), [*EVERYONE, "my_package:MyLocalizer"], workers=2',
                        "[SCENARIO], ['votes']")  # fmt: skip
    exec(compile(text, "docs/guide/arena.md", "exec"), {"SCENARIO": SCENARIO})  # noqa: S102
    assert (tmp_path / "report.html").stat().st_size > 1000
    assert (tmp_path / "report.png").stat().st_size > 1000


def test_every_baseline_is_in_the_table() -> None:
    """With its name as `compare` takes it."""
    for name in BASELINES:
        assert f"| `{name}` |" in DOCS
