"""When the agent looks at what, and which components it tells of."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from probers.clock import Instant
from probers.config.settings import AgentConfig, build_config
from probers.host.state_watch import build_state_watch, rnic_component
from probers.host.states import StateReport, Value
from schemas.process.settings import ConfigError
from schemas.units import SECOND_NS
from tests.unit.probers.trees import build

START = Instant(1_000 * SECOND_NS, 1_700_000_000 * SECOND_NS)


def config(root: Path, *, rnics: int = 1, **options: Any) -> AgentConfig:
    """Return the settings of an agent whose RNICs are the trees `root/0`, `root/1` …."""
    ports = [str(build("connectx6", root / str(rail)).port) for rail in range(rnics)]
    table = {
        "host_id": "host:h3",
        "sysfs": str(root / "0" / "sys"),
        "procfs": str(root / "0" / "proc"),
        "rnic": [
            {"rail": rail, "address": "10.0.0.1", "counters": port}
            for rail, port in enumerate(ports)
        ],
        **options,
    }
    return build_config({}, {}, table)


def watched(made: AgentConfig, seconds: int) -> list[tuple[int, StateReport]]:
    """Return what is told in so many seconds, with the second."""
    watch = build_state_watch(made, START)
    told = []
    for tick in range(seconds * 10):
        now = Instant(
            START.monotonic_ns + tick * SECOND_NS // 10, START.realtime_ns + tick * SECOND_NS // 10
        )
        if watch.expired(now.monotonic_ns):
            told += [(tick // 10, one) for one in watch.look(now)]
    return told


def test_components_are_named_as_the_topology_names_them(tmp_path: Path) -> None:
    """By host and rail, or as the settings say."""
    made = config(tmp_path, rnics=2, hugepages="2048kB=4")
    components = {one.component_id for _, one in watched(made, 10)}
    assert components == {"rnic:h3/r0", "rnic:h3/r1", "host:h3", "vsw:h3"}
    rnic = {"rail": 5, "address": "10.0.0.1", "component": "nic-5"}
    named = build_config({}, {}, {"host_id": "n17", "rnic": [rnic]})
    assert rnic_component(named.rnics[0], "n17") == "nic-5"
    plain = build_config({}, {}, {"host_id": "n17", "rnic": [{"rail": 5, "address": "10.0.0.1"}]})
    assert rnic_component(plain.rnics[0], "n17") == "rnic:n17/r5"


def test_everything_is_told_once_and_then_once_a_minute(tmp_path: Path) -> None:
    """Nothing changes, so each state is told at 0 s and then about every minute."""
    told = watched(config(tmp_path), 200)
    times: dict[tuple[str, str], list[int]] = {}
    for second, one in told:
        times.setdefault((one.component_id, one.attribute), []).append(second)
    assert len(times) == 18 + 2
    for key, seconds in times.items():
        assert seconds[0] <= 15, key
        gaps = [b - a for a, b in itertools.pairwise(seconds)]
        assert gaps, key
        assert min(gaps) >= 60, key
        assert max(gaps) <= 75, key


def test_a_change_is_told_within_a_look(tmp_path: Path) -> None:
    """A port that goes down and a device that goes away: within five seconds each."""
    made = config(tmp_path)
    watch = build_state_watch(made, START)
    port = made.rnics[0].counters
    assert port is not None
    seen: list[tuple[int, str, str | None]] = []
    for second in range(60):
        if second == 20:
            (port / "state").write_text("1: DOWN\n")
        if second == 40:
            shutil.rmtree(port.parent.parent.resolve())
        now = Instant(
            START.monotonic_ns + second * SECOND_NS, START.realtime_ns + second * SECOND_NS
        )
        if watch.expired(now.monotonic_ns):
            seen += [(second, t.attribute, t.value.text) for t in watch.look(now)]
    down = [s for s, attribute, text in seen if (attribute, text) == ("port_state", "down")]
    gone = [s for s, attribute, text in seen if (attribute, text) == ("device", "gone")]
    assert 20 <= down[0] <= 25
    assert 40 <= gone[0] <= 45


@pytest.mark.parametrize(
    ("pages", "setting", "expected"),
    [("1024", "2048kB=1024", "match"), ("1000", "2048kB=1024", "mismatch"), ("", "2048kB=1", None)],
)
def test_hugepages_are_judged_by_what_the_host_should_have(
    tmp_path: Path, pages: str, setting: str, expected: str | None
) -> None:
    """A size that sysfs does not know is unknown."""
    made = config(tmp_path, hugepages=setting)
    folder = tmp_path / "0" / "sys" / "kernel" / "mm" / "hugepages" / "hugepages-2048kB"
    folder.mkdir(parents=True)
    (folder / "nr_hugepages").write_text(pages + "\n")
    (value,) = [one.value for _, one in watched(made, 10) if one.attribute == "hugepages"]
    assert value.text == expected


def test_nobody_looks_when_told_not_to(tmp_path: Path) -> None:
    """`states_s = 0`, and an agent without RNIC folders tells of its host only."""
    assert watched(config(tmp_path, states_s=0), 30) == []
    bare = build_config({}, {}, {"host_id": "h0", "rnic": [{"rail": 0, "address": "10.0.0.1"}]})
    assert {one.component_id for _, one in watched(bare, 10)} == {"h0"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"hugepages": "2MB=1"}, "hugepages='2MB=1'"),
        ({"hugepages": "2048kB"}, "hugepages='2048kB'"),
        ({"vswitch_id": "a b"}, "vswitch_id"),
        ({"states_s": 61}, "states_s"),
        (
            {"rnic": [{"rail": r, "address": "10.0.0.1", "component": "x"} for r in (0, 1)]},
            "two RNICs have the same component",
        ),
        ({"rnic": [{"rail": 0, "address": "10.0.0.1", "component": "a b"}]}, "component"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    """As all others are."""
    with pytest.raises(ConfigError, match=complaint):
        config(tmp_path, **options)


def test_what_answers_probes_is_told_of_who_is_to_speak_rdma(tmp_path: Path) -> None:
    """UDP in place of RDMA is a fault, UDP that was asked for is none: nothing is told of it."""
    made = config(tmp_path, rnics=2)
    words = iter(["rdma", "udp", "udp", "udp"])
    answering = {made.rnics[1].endpoint_id: lambda: Value(next(words))}
    watch = build_state_watch(made, START, 0, answering)
    port = made.rnics[1].counters
    assert port is not None
    told = [one for tick in range(9) for one in watch.look(at(tick))]
    port.parent.parent.unlink()
    told += [one for tick in range(9, 12) for one in watch.look(at(tick))]
    found = [(one.component_id, one.value.text) for one in told if one.attribute == "transport"]
    assert found == [("rnic:h3/r1", "rdma"), ("rnic:h3/r1", "udp"), ("rnic:h3/r1", None)]


def at(tick: int) -> Instant:
    """Return that second."""
    return Instant(START.monotonic_ns + tick * SECOND_NS, START.realtime_ns + tick * SECOND_NS)
