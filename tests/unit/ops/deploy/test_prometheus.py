"""Prometheus' rules: `promtool` runs their tests; they ask for metrics that processes expose."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.docs.metrics import PROCESSES
from schemas.metrics.exposition import BUILD
from schemas.metrics.family import Kind
from tests import ROOT

FOLDER = ROOT / "ops" / "deploy" / "prometheus"
RULES = FOLDER / "rules.yml"
MONITORING = ROOT / "docs" / "guide" / "monitoring.md"
NAME = re.compile(r"\bskeletonhunter_\w+")
promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: Debian's package prometheus has it",
)


def rules() -> list[dict[str, Any]]:
    """Return all rules."""
    return [r for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]]


def exposed_names() -> set[str]:
    """Return the names of all series that processes have."""
    names = {BUILD.name}
    for _, metrics in PROCESSES.values():
        for metric in metrics:
            endings = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
            names |= {metric.name + ending for ending in endings}
    return names


def test_rules_ask_for_what_is_exposed() -> None:
    """Each metric in an expression is declared by a process."""
    for rule in rules():
        assert set(NAME.findall(rule["expr"])) <= exposed_names(), rule["alert"]


def test_each_alert_is_explained() -> None:
    """By a row of the page, with a severity and a summary in the rule."""
    page = MONITORING.read_text()
    for rule in rules():
        assert f"| `{rule['alert']}` |" in page
        assert rule["labels"]["severity"] in {"none", "warning", "critical"}
        assert rule["annotations"]["summary"]


@promtool
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "rules_test.yml"],
    ],
    ids=" ".join,
)
def test_promtool(command: list[str], tmp_path: Path) -> None:
    """Rules and settings are right, and each alert fires when it must and not before."""
    done = subprocess.run(
        ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("amtool") is None,
    reason="amtool is not installed: Debian's package prometheus-alertmanager has it",
)
@pytest.mark.parametrize(
    ("name", "routed"),
    [
        ("alertmanager", {"people": ["alertname=SkeletonHunterFault"]}),
        (
            "slack",
            {
                "slack": ["alertname=SkeletonHunterFault"],
                "slack-vision": ["alertname=SkeletonHunterFault", "owner=team-vision"],
            },
        ),
    ],
)
def test_amtool_takes_the_routes_and_sends_each_fault_by_itself(
    name: str, routed: dict[str, list[str]]
) -> None:
    """The settings are right; the watchdog goes to who misses it, everything else to people."""
    config = FOLDER.parent / "alertmanager" / f"{name}.yml"
    commands = [["amtool", "check-config", str(config)]]
    for receiver, labels in {**routed, "watchdog": ["alertname=SkeletonHunterWatchdog"]}.items():
        command = ["amtool", "config", "routes", "test", f"--config.file={config}"]
        commands.append([*command, f"--verify.receivers={receiver}", "fault_id=f-1", *labels])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "fault_id" in yaml.safe_load(config.read_text("utf-8"))["route"]["group_by"]
