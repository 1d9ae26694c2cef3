"""The units of agent and pipeline: what they promise, and what systemd's own tools say of them."""

import configparser
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests import ROOT
from tests.unit.ops.deploy.program import runs

FOLDER = ROOT / "ops" / "deploy" / "systemd"
UNIT = FOLDER / "skeletonhunter-agent.service"
PIPELINE = FOLDER / "skeletonhunter@.service"
COMMANDS = sorted((FOLDER / "commands").glob("*.env"))
PRIVILEGES = FOLDER / "more-privileges.conf"
# Exposure in tenths, from 0 (none) to 100, that `systemd-analyze security` may reach: it counts
# the network, RDMA devices and the one capability, which an agent cannot do without.
EXPOSURE = 20

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine"
)


def directives(text: str) -> dict[str, list[str]]:
    """Return the values of each directive of a unit, in order."""
    found = defaultdict(list)
    for line in text.splitlines():
        if line and not line.startswith(("#", "[", ";")):
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


SERVICE = directives(UNIT.read_text(encoding="utf-8"))


def test_one_capability_and_no_other_way_to_more() -> None:
    """CAP_IPC_LOCK is all that the process has and can ever have."""
    assert SERVICE["CapabilityBoundingSet"] == ["CAP_IPC_LOCK"]
    assert SERVICE["AmbientCapabilities"] == ["CAP_IPC_LOCK"]
    assert SERVICE["NoNewPrivileges"] == ["yes"]
    assert SERVICE["User"] == ["skeletonhunter"]
    assert SERVICE["SupplementaryGroups"] == ["rdma"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("RestrictNamespaces", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("DevicePolicy", "closed"),
        ("LimitMEMLOCK", "infinity"),
        ("Restart", "always"),
        ("Type", "notify"),
    ],
)
def test_restrictions(name: str, value: str) -> None:
    """Each is set once."""
    assert SERVICE[name] == [value]


def test_packet_sockets_and_privileged_calls_are_for_the_drop_in() -> None:
    """What verbs, Kafka and the manager need is there, and no more."""
    assert SERVICE["RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6 AF_NETLINK"]
    assert SERVICE["SystemCallFilter"][:2] == ["@system-service", "~@privileged @resources"]
    assert SERVICE["DeviceAllow"] == ["char-infiniband_verbs rw"]


def test_the_manager_waits_for_as_long_as_the_agent_takes() -> None:
    """Between two signs of life and at the end, with the largest linger that can be set."""
    from probers.agent import FLUSH_NS, MAX_SLEEP_NS
    from probers.config.settings import OPTIONS
    from probers.health.supervision import FEEDS

    (watchdog,) = SERVICE["WatchdogSec"]
    assert int(watchdog.removesuffix("s")) / FEEDS >= 5 * MAX_SLEEP_NS / 1e9
    (linger,) = (o for o in OPTIONS if o.name == "linger_ms")
    (stop,) = SERVICE["TimeoutStopSec"]
    assert int(stop.removesuffix("s")) > linger.high / 1_000 + FLUSH_NS / 1e9 + 5


def test_wrong_settings_are_not_tried_again() -> None:
    """The exit code that the command line has for them."""
    from probers.cli import USAGE

    assert SERVICE["RestartPreventExitStatus"] == [str(USAGE)]


def test_the_drop_in_changes_nothing_until_somebody_edits_it() -> None:
    """All of it is commented out, names directives of the unit, and adds to lists."""
    text = PRIVILEGES.read_text(encoding="utf-8")
    assert not directives(text)
    offered = re.findall(r"^#(\w+)=(.+)$", text, re.MULTILINE)
    assert {value for name, value in offered if name == "AmbientCapabilities"} == {
        "CAP_NET_RAW",
        "CAP_SYS_ADMIN",
    }
    assert all(name in SERVICE for name, _ in offered)


def test_the_user_is_made_with_the_group_of_the_devices() -> None:
    """The group exists even where no RDMA package has made it: a unit with an unknown one fails."""
    text = (FOLDER / "skeletonhunter.sysusers.conf").read_text(encoding="utf-8")
    lines = [line.split()[:3] for line in text.splitlines() if not line.startswith("#")]
    assert ["g", "rdma", "-"] in lines
    assert ["m", "skeletonhunter", "rdma"] in lines


def test_it_is_a_unit_file() -> None:
    """Three sections, each once."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read(UNIT, encoding="utf-8")
    assert parser.sections() == ["Unit", "Service", "Install"]


@needs_systemd
@pytest.mark.parametrize("privileged", [False, True])
def test_systemd_understands_it(tmp_path: Path, privileged: bool) -> None:
    """`systemd-analyze verify` says nothing, nor with all of the drop-in taken in."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/skeletonhunter/bin/python", sys.executable))
    if privileged:
        folder = tmp_path / f"{UNIT.name}.d"
        folder.mkdir()
        drop_in = re.sub(r"^#(\w+=)", r"\1", PRIVILEGES.read_text("utf-8"), flags=re.MULTILINE)
        (folder / PRIVILEGES.name).write_text(drop_in)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_its_exposure_is_low() -> None:
    """By systemd's own count."""
    done = subprocess.run(
        [
            "systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}",
            "--no-pager", str(UNIT),
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-200:]


def test_the_pipelines_commands_exist_and_share_no_port() -> None:
    """Each is a command of this program, with metrics at a port of its own."""
    commands = {p.stem: directives(p.read_text("utf-8"))["COMMAND"][0].split() for p in COMMANDS}
    assert set(commands) == {"worker", "localizer", "hangs", "skeleton", "bridge", "web"}
    assert all(runs(words) for words in commands.values())
    ports = {words[words.index("--metrics-listen") + 1] for words in commands.values()}
    assert len(ports) == len(commands)


@needs_systemd
def test_systemd_understands_the_pipelines_unit(tmp_path: Path) -> None:
    """As an instance, which may do little (tenths of exposure: the network is most of it)."""
    unit = tmp_path / PIPELINE.name.replace("@", "@worker")
    text = PIPELINE.read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/skeletonhunter/bin/skeletonhunter", sys.executable))
    for command in (
        ["verify", "--man=no", "--recursive-errors=no"],
        ["security", "--offline=true", "--threshold=25", "--no-pager"],
    ):
        done = subprocess.run(
            ["systemd-analyze", *command, str(unit)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), done.stdout[-300:]
