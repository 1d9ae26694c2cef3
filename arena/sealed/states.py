"""States of components, by readers that are late, forget, or cannot read.

Agents read their RNICs and virtual switches, a collector of the operator's reads switches and
cables, and the platform says which containers run and which hosts are in maintenance. Each reads
with a period of its own.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arena.sealed.agents import Agents
from arena.sealed.hashing import text_word
from arena.sealed.plan import Reader, StateSteps, Value
from schemas import topics
from schemas.ids import state_id
from schemas.records import ComponentState
from schemas.units import ns_to_us

EVERYTHING_S: Final = 60.0
UNREADABLE: Final = "the driver does not say"

RNIC_ATTRIBUTES: Final = (
    "device", "port_state", "bond", "transport", "link_flaps", "crc_errors_per_s",
    "discards_per_s", "pause_frames_per_s", "pcie_width", "pcie_speed_gts", "pcie_errors_per_s",
    "gid_table", "congestion_control", "gpudirect", "acs",
)  # fmt: skip
VSWITCH_ATTRIBUTES: Final = ("hugepages", "flow_evictions_per_s")
CABLE_ATTRIBUTES: Final = ("port_state", "link_flaps", "crc_errors_per_s", "egress_utilization")
SWITCH_ATTRIBUTES: Final = (
    "discards_per_s", "pause_frames_per_s", "acl_denied_per_s", "congestion_control"
)  # fmt: skip
# What only some drivers, or only root, can read.
SOMETIMES_UNREADABLE: Final = (
    "congestion_control",
    "acs",
    "gpudirect",
    "pcie_errors_per_s",
    "bond",
)
_HEALTHY: Final[dict[str, str | float]] = {
    "device": "present", "port_state": "active", "transport": "rdma", "link_flaps": 0.0,
    "crc_errors_per_s": 0.0, "pcie_width": 16.0, "pcie_speed_gts": 32.0, "pcie_errors_per_s": 0.0,
    "congestion_control": "on", "gpudirect": "loaded", "acs": "disabled", "hugepages": "match",
    "flow_evictions_per_s": 0.0, "acl_denied_per_s": 0.0, "container": "running",
    "maintenance": "none",
}  # fmt: skip


# What moves while all is well: how often it is not 0, and between what.
_USUAL_RATES: Final = {
    "egress_utilization": (1.0, 0.08, 0.62),
    "pause_frames_per_s": (0.7, 0.0, 120.0),
    "discards_per_s": (0.03, 0.03, 0.9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """How states are read in a cluster.

    Attributes
    ----------
    period_s : of each reader; one that is not there reads nothing
    late_s : most time between reading and publishing
    unreadable : attributes that agents cannot read here
    """

    period_s: dict[Reader, float]
    late_s: dict[Reader, float]
    unreadable: frozenset[str]

    def shows(self, reader: Reader, attribute: str) -> bool:
        """Return whether an attribute is published at all."""
        return reader in self.period_s and not (
            reader is Reader.AGENT and attribute in self.unreadable
        )

    def within_s(self, reader: Reader) -> float:
        """Return the time after which a change has been published."""
        # A rate is a mean over 30 s and shows within half of that.
        return self.period_s[reader] + self.late_s[reader] + 15.0


def draw_readers(rng: np.random.Generator) -> Readers:
    """Return the readers of a cluster: periods of 5, 30 and 60 s, and in a quarter no collector."""
    period_s = {
        Reader.AGENT: float(rng.choice([5.0, 30.0, 60.0], p=[0.6, 0.25, 0.15])),
        Reader.PLATFORM: float(rng.choice([5.0, 30.0, 60.0])),
    }
    if rng.random() < 0.75:
        period_s[Reader.COLLECTOR] = float(rng.choice([30.0, 60.0]))
    late_s = {
        Reader.AGENT: 0.5,
        Reader.PLATFORM: float(rng.choice([1.0, 10.0])),
        Reader.COLLECTOR: float(rng.choice([1.0, 5.0, 20.0])),
    }
    unreadable = frozenset(name for name in SOMETIMES_UNREADABLE if rng.random() < 0.25)
    return Readers(period_s=period_s, late_s=late_s, unreadable=unreadable)


@dataclass(slots=True, kw_only=True)
class _Unit:
    """One reading process, and what it remembers of each attribute: value, and since when."""

    source: str
    reader: Reader
    agent: int | None
    attributes: list[tuple[str, str]]
    next_s: float
    whole_s: float = -1e9
    memory: dict[tuple[str, str], tuple[Value, float]] = field(default_factory=dict)
    begun: object = None


@dataclass(slots=True, kw_only=True)
class StateFeed:
    """Publishes the states of all components."""

    agents: Agents
    readers: Readers
    rng: np.random.Generator
    _units: list[_Unit] = field(default_factory=list)
    _steps: dict[tuple[str, str], list[StateSteps]] = field(default_factory=dict)
    _strays: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps = defaultdict(list)
        for entry in self.agents.plan.states:
            steps[entry.component, entry.attribute].append(entry)
        self._steps = dict(steps)
        self._strays = sorted(
            (at_s, i) for i, stray in enumerate(self.agents.plan.strays) for at_s in stray.times_s
        )
        for source, reader, agent, attributes in self._sources():
            if reader in self.readers.period_s:
                next_s = float(self.rng.uniform(1.0, 1.0 + self.readers.period_s[reader]))
                self._units.append(
                    _Unit(source=source, reader=reader, agent=agent, attributes=attributes,
                          next_s=next_s)
                )  # fmt: skip

    def read(self, second: int) -> None:
        """Publish what readers see in a second."""
        for unit in self._units:
            while unit.next_s < second + 1:
                self._read(unit, unit.next_s)
                unit.next_s += self.readers.period_s[unit.reader]
        while self._strays and self._strays[0][0] < second + 1:
            at_s, index = self._strays.pop(0)
            stray = self.agents.plan.strays[index]
            self._send(
                stray.source,
                stray.component,
                stray.attribute,
                stray.value,
                changed_s=at_s,
                at_s=at_s,
                late_s=0.0,
            )

    def _sources(self) -> list[tuple[str, Reader, int | None, list[tuple[str, str]]]]:
        cluster = self.agents.cluster
        fabric = cluster.fabric
        sources: list[tuple[str, Reader, int | None, list[tuple[str, str]]]] = []
        read_hosts = set()
        for agent, group in enumerate(cluster.agents):
            pairs = [(cluster.rnic_name(e), a) for e in group.endpoints for a in RNIC_ATTRIBUTES]
            if cluster.overlay and group.host not in read_hosts:
                read_hosts.add(group.host)
                pairs += [(cluster.vswitch_name(group.host), a) for a in VSWITCH_ATTRIBUTES]
            sources.append((group.name, Reader.AGENT, agent, pairs))
        wired = [(cable.name, a) for cable in fabric.cables for a in CABLE_ATTRIBUTES]
        switches = [(n.name, a) for n in fabric.nodes[fabric.rnics :] for a in SWITCH_ATTRIBUTES]
        sources.append(("switch-collector", Reader.COLLECTOR, None, wired + switches))
        placed = [(container.name, "container") for container in cluster.containers]
        hosts = [(host.name, "maintenance") for host in cluster.hosts]
        sources.append(("platform", Reader.PLATFORM, None, placed + hosts))
        return sources

    def _read(self, unit: _Unit, at_s: float) -> None:
        agents = self.agents
        begun: object = None
        if unit.agent is not None:
            process = agents.processes[unit.agent]
            if process is None or agents.muted[unit.agent] or not agents.runs(unit.agent, at_s):
                return
            begun = process.incarnation_ns
        for reader, schedule in agents.plan.reader_pauses:
            if reader is unit.reader and schedule.begin_s <= at_s < schedule.end_s:
                unit.begun = "again"
                return
        if begun != unit.begun:
            # A reader that starts again remembers nothing: all it knows is since now.
            unit.memory.clear()
            unit.begun, unit.whole_s = begun, -1e9
        whole = at_s - unit.whole_s >= EVERYTHING_S - 0.5
        if whole:
            unit.whole_s = at_s
        late_s = float(self.rng.uniform(0.0, self.readers.late_s[unit.reader]))
        for component, attribute in unit.attributes:
            value = self._value(unit, component, attribute, at_s)
            known = unit.memory.get((component, attribute))
            if known is None or _is_new(known[0], value):
                known = (value, at_s)
                unit.memory[component, attribute] = known
            elif not whole:
                continue
            self._send(
                unit.source,
                component,
                attribute,
                value,
                changed_s=known[1],
                at_s=at_s,
                late_s=late_s,
            )

    def _value(self, unit: _Unit, component: str, attribute: str, at_s: float) -> Value:
        """Return what a reader sees; the empty text: unknown."""
        for steps in self._steps.get((component, attribute), ()):
            value = steps.value(at_s)
            if value is not None:
                return value
        if unit.reader is Reader.AGENT and attribute in self.readers.unreadable:
            return ""
        if attribute in _USUAL_RATES:
            share, low, high = _USUAL_RATES[attribute]
            usual = float(self.rng.uniform(low, high)) if self.rng.random() < share else 0.0
            return round(usual, 3)
        if attribute == "gid_table":
            return f"4 GIDs {text_word(component) & 0xFFFFFF:06x}"
        if attribute == "bond":
            return "active" if self.agents.cluster.shape.homes == 2 else "none"
        return _HEALTHY[attribute]

    def _send(
        self, source: str, component: str, attribute: str, value: Value,
        *, changed_s: float, at_s: float, late_s: float,
    ) -> None:  # fmt: skip
        agents = self.agents
        key = state_id(component, attribute)
        unknown = value == ""
        record = ComponentState(
            cluster=agents.cluster.name,
            state_id=key,
            component_id=component,
            attribute=attribute,
            text=value if isinstance(value, str) and not unknown else None,
            number=value if isinstance(value, float) else None,
            missing_reason=UNREADABLE if unknown else None,
            changed_at=ns_to_us(agents.true_ns(changed_s)),
            observed_at=ns_to_us(agents.true_ns(at_s)),
            source=source,
            producer_version=agents.cluster.version,
        )
        agents.outbox.send(source, at_s + late_s, topics.COMPONENT_STATE.name, key, record)


def _is_new(old: Value, new: Value) -> bool:
    """Return whether a value is another one: of numbers, whether it has moved by much."""
    if isinstance(old, float) and isinstance(new, float):
        low, high = sorted((max(old, 0.3), max(new, 0.3)))
        return high >= 8.0 * low or (low < 1.0 <= high) or (low < 0.9 <= high < 1.0)
    return old != new
