"""The collector's unit: what it may do, and what systemd's own tools say of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probers.collector.cli import USAGE
from probers.collector.service import CLOSE_NS
from tests.unit.ops.deploy.test_systemd import FOLDER, directives

UNIT = FOLDER / "skeletonhunter-collect.service"
SERVICE = directives(UNIT.read_text(encoding="utf-8"))
# Exposure in tenths, from 0 (none) to 100: three capabilities, two of which are near to root's.
EXPOSURE = 35

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine"
)


def test_three_capabilities_and_no_other_way_to_more() -> None:
    """They are all that the process has and can ever have."""
    wanted = ["CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_SYS_ADMIN"]
    assert SERVICE["CapabilityBoundingSet"] == wanted
    assert SERVICE["AmbientCapabilities"] == wanted
    assert (SERVICE["NoNewPrivileges"], SERVICE["User"]) == (["yes"], ["skeletonhunter"])
    assert SERVICE["RestrictNamespaces"] == ["net"]


def test_processes_of_others_are_not_hidden() -> None:
    """As they are from the agent, which looks at none."""
    assert "ProtectProc" not in SERVICE
    assert "ProcSubset" not in SERVICE


def test_it_ends_in_time_and_wrong_settings_are_not_tried_again() -> None:
    """By the collector's own numbers."""
    (stop,) = SERVICE["TimeoutStopSec"]
    assert int(stop.removesuffix("s")) > CLOSE_NS / 1e9 + 5
    assert SERVICE["RestartPreventExitStatus"] == [str(USAGE)]


@needs_systemd
def test_systemd_understands_it(tmp_path: Path) -> None:
    """`systemd-analyze` says nothing, and that its exposure is what the capabilities make it."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/skeletonhunter/bin/python", sys.executable))
    for command in (
        ["verify", "--man=no", "--recursive-errors=no"],
        ["security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager"],
    ):
        done = subprocess.run(
            ["systemd-analyze", *command, str(unit)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-300:]
