"""Component states, and which of them are out of order.

The rules are data: for each attribute what is out of order, which family of symptoms it explains,
and the kind of fault that it means. What is out of order is a `Finding`: it says between which two
readings the state changed, so that `localizer.facts.findings` can hold it against the time at which
probes went bad.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from schemas.enums import AnomalyFamily
from schemas.records import ComponentState
from schemas.units import SECOND_NS, us_to_ns

MAX_STATES: Final = 1_000_000
MAINTENANCE: Final = "maintenance"
# Distance of readings until a reader has shown its own: writers repeat everything once a minute.
USUAL_PERIOD_NS: Final = 60 * SECOND_NS
# A reader may miss one reading: so many periods before it saw a change, the change may have been.
PERIODS: Final = 2
# Nor is one that missed a repetition gone: the next one comes up to a reading late.
HEARD_PERIODS: Final = 3
# Readers of one attribute that are followed: the agents of a host's containers, and collectors.
MAX_READERS: Final = 16
# One that is silent while others write is forgotten after five repetitions: an agent that was
# replaced by one of another name would else be believed, or contradict, for ever.
READER_KEEP_NS: Final = 5 * USUAL_PERIOD_NS
# Of these many last distances between arrivals the median is a reader's period: one reading that
# came late, or two that came together after it, do not move it.
GAPS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When an attribute is out of order.

    Attributes
    ----------
    attribute : its name
    kind : name of the fault kind
    family : symptoms that it explains
    usual : words that are in order; if empty, any change is out of order
    least : a number from which on it is out of order; None: words count
    falls : a number that falls below its former value is out of order
    alone : it is a fault by itself, whether or not probes show it: what was configured is not so
    lasts : the fault that it means is there as long as it is read, though packets go around it
    """

    attribute: str
    kind: str
    family: AnomalyFamily
    usual: frozenset[str] = frozenset()
    least: float | None = None
    falls: bool = False
    alone: bool = False
    lasts: bool = False


def _words(attribute: str, kind: str, family: AnomalyFamily, *usual: str) -> Rule:
    return Rule(attribute=attribute, kind=kind, family=family, usual=frozenset(usual))


def _number(attribute: str, kind: str, family: AnomalyFamily, least: float) -> Rule:
    return Rule(attribute=attribute, kind=kind, family=family, least=least)


LOSS, LATE = AnomalyFamily.LOSS, AnomalyFamily.LATENCY
RULES: Final[tuple[Rule, ...]] = (
    replace(_words("device", "device_gone", LOSS, "present"), lasts=True),
    replace(_words("port_state", "port_down", LOSS, "up", "active"), lasts=True),
    _words("container", "container_crash", LOSS, "running"),
    _words("gid_table", "gid_change", LOSS),
    replace(_words("bond", "bond_error", LOSS, "active", "none"), lasts=True),
    _number("link_flaps", "port_flapping", LOSS, 2),
    _number("crc_errors_per_s", "crc_error", LOSS, 1),
    _number("acl_denied_per_s", "acl_error", LOSS, 1),
    _number("pause_frames_per_s", "pfc_deadlock", LOSS, 1_000),
    _number("discards_per_s", "buffer_loss", LOSS, 10),
    Rule(attribute="pcie_width", kind="pcie_downgrade", family=LATE, falls=True),
    Rule(attribute="pcie_speed_gts", kind="pcie_downgrade", family=LATE, falls=True),
    _number("pcie_errors_per_s", "pcie_error", LATE, 1),
    _words("gpudirect", "gpudirect_missing", LATE, "loaded", "dma-buf"),
    # Agents report it only where RDMA is configured.
    replace(_words("transport", "not_using_rdma", LATE, "rdma"), alone=True),
    _words("hugepages", "hugepage_mismatch", LATE, "match"),
    _words("congestion_control", "congestion_control_off", LATE, "on"),
    _words("acs", "acs_ats_wrong", LATE, "disabled"),
    _number("flow_evictions_per_s", "repetitive_offload", LATE, 1),
    _number("egress_utilization", "congestion", LATE, 0.9),
)
BY_ATTRIBUTE: Final = {rule.attribute: rule for rule in RULES}
# Kinds of a rule that drops single pairs and lets all else pass: by its count of good 5-tuples a
# component is never at fault, and no cable has such a rule.
SELECTIVE: Final = frozenset({"acl_error"})
# Kinds that delay some packets: of pairs whose flow entries are not in hardware, always or again
# and again.
IN_SOFTWARE: Final = frozenset({"not_offloaded", "repetitive_offload"})
# Kinds that probes alone cannot identify.
SPECIFIC: Final = frozenset({rule.kind for rule in RULES} | {"not_offloaded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is out of order at a component and means a kind of fault.

    Attributes
    ----------
    kind
        Name of the fault kind.
    family
        Symptoms that it explains.
    before_ns, since_ns
        It went out of order after the first and at the latest at the second: the two readings
        between which it changed.
    shown
        What was read, for people.
    disputed
        Whether another reader saw it in order later.
    """

    kind: str
    family: AnomalyFamily
    component_id: str
    before_ns: int
    since_ns: int
    shown: str
    disputed: bool = False


@dataclass(slots=True)
class _Reading:
    """What one reader says of one attribute of a component.

    Attributes
    ----------
    before
        The last known value before this one: a device that returns is compared with what it was.
    read_ns, arrived_ns
        When it was read last, by the reader's clock but not after its arrival; and that arrival.
    gaps_ns
        The last distances between arrivals.
    bad
        Between which times it went out of order; None: it is in order.
    other
        What the next reader says: nearly always there is none, and this takes the least memory.
    """

    source: str
    text: str | None
    number: float | None
    before: float | str | None
    read_ns: int
    arrived_ns: int
    gaps_ns: tuple[int, ...]
    bad: tuple[int, int] | None
    other: "_Reading | None"

    @property
    def value(self) -> float | str | None:
        return self.number if self.text is None else self.text

    @property
    def period_ns(self) -> int:
        """Usual distance of readings."""
        if not self.gaps_ns:
            return USUAL_PERIOD_NS
        return sorted(self.gaps_ns)[len(self.gaps_ns) // 2]

    def readers(self) -> "Iterator[_Reading]":
        """Yield what each reader says."""
        at: _Reading | None = self
        while at is not None:
            yield at
            at = at.other


class StateBook:
    """The latest states of all components.

    Attributes
    ----------
    refused
        Records beyond the bound.
    bad
        Components with something out of order: few, while a storm asks for thousands.
    """

    def __init__(self) -> None:
        self.version = 0
        self.refused = 0
        self._count = 0
        self._states: defaultdict[str, dict[str, _Reading]] = defaultdict(dict)
        self.bad: set[str] = set()
        # Components and their attributes that are out of order and a fault by themselves.
        self._alone: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return self._count

    def set_state(self, state: ComponentState, arrived_ns: int) -> None:
        """Apply a state that arrived at a time."""
        first = self._states.get(state.component_id, {}).get(state.attribute)
        known, others = None, []
        for reader in () if first is None else first.readers():
            if reader.source == state.source:
                known = reader
            else:
                others.append(reader)
        fresh = known is None
        if known is None:
            if self._count >= MAX_STATES:
                self.refused += 1
                return
            known = _Reading(state.source, None, None, None, arrived_ns, arrived_ns, (), None, None)
            self._count += 1
            self.version += 1
        else:
            known.gaps_ns = (*known.gaps_ns, max(arrived_ns - known.arrived_ns, 1))[-GAPS:]
        heard = _heard(others, arrived_ns)
        if fresh or len(heard) < len(others):
            self._states[state.component_id][state.attribute] = _linked([known, *heard])
        self._read(known, state, arrived_ns, fresh=fresh)
        if len(heard) < len(others):
            self._count -= len(others) - len(heard)
            self.version += 1
            self._count_bad(state.component_id)

    def _read(
        self, known: _Reading, state: ComponentState, arrived_ns: int, *, fresh: bool
    ) -> None:
        """Replace what a reader says; note between which readings it went out of order."""
        read_ns = min(us_to_ns(state.observed_at), arrived_ns)
        changed_ns = min(us_to_ns(state.changed_at), read_ns)
        last_ns = read_ns - PERIODS * known.period_ns if fresh else known.read_ns
        if (known.text, known.number) != (state.text, state.number):
            if known.value is not None:
                known.before = known.value
            known.text, known.number = state.text, state.number
            self.version += 1
        known.read_ns, known.arrived_ns = read_ns, arrived_ns
        rule = BY_ATTRIBUTE.get(state.attribute)
        if rule is None or known.value is None:
            return
        if not _out_of_order(rule, known):
            if known.bad is not None:
                known.bad = None
                self._count_bad(state.component_id)
        elif known.bad is None:
            # `changed_at` counts if it says more than the readings do: a rate changes all the time.
            since_ns = changed_ns if fresh or changed_ns > last_ns else read_ns
            earliest_ns = since_ns - PERIODS * known.period_ns
            known.bad = (earliest_ns if fresh else max(last_ns, earliest_ns), since_ns)
            self.bad.add(state.component_id)
        if rule.alone and known.bad is not None:
            self._alone.add((state.component_id, state.attribute))

    @property
    def all_well(self) -> bool:
        """Whether nothing is out of order that is a fault by itself."""
        return not self._alone

    def faults(self, now_ns: int) -> list[Finding]:
        """Return what is out of order and a fault by itself, by component.

        A reader must have seen it twice: what falls back for a moment is none. All readers that are
        heard must agree.
        """
        found = []
        for component_id, attribute in sorted(self._alone):
            first = self._states.get(component_id, {}).get(attribute)
            heard = [] if first is None else _heard([*first.readers()], now_ns)
            bad = [(r.bad, r) for r in heard if r.bad is not None and r.value is not None]
            if not bad:
                self._alone.discard((component_id, attribute))
            elif len(bad) == sum(r.value is not None for r in heard) and any(
                r.read_ns > since_ns for (_, since_ns), r in bad
            ):
                (before_ns, since_ns), one = min(bad, key=lambda b: b[0])
                found.append(
                    Finding(
                        kind=BY_ATTRIBUTE[attribute].kind,
                        family=BY_ATTRIBUTE[attribute].family,
                        component_id=component_id,
                        before_ns=before_ns,
                        since_ns=since_ns,
                        shown=f"{attribute} is {one.value}",
                    )
                )
        return found

    def _count_bad(self, component_id: str) -> None:
        """Note whether a component still has something out of order."""
        firsts = self._states.get(component_id, {}).values()
        if not any(r.bad is not None for first in firsts for r in first.readers()):
            self.bad.discard(component_id)

    def remove_state(self, state_id: str) -> None:
        """Forget a state by its id, `<component>|<attribute>`."""
        component_id, _, attribute = state_id.rpartition("|")
        gone = self._states.get(component_id, {}).pop(attribute, None)
        if gone is not None:
            if not self._states[component_id]:
                del self._states[component_id]
            self._count -= sum(1 for _ in gone.readers())
            self._count_bad(component_id)
            self.version += 1

    def in_maintenance(self, component_id: str) -> bool:
        """Return whether an operator has marked the component: whoever wrote last is right."""
        known = self._states.get(component_id, {}).get(MAINTENANCE)
        if known is None:
            return False
        last = max(known.readers(), key=lambda r: r.arrived_ns)
        return last.text not in (None, "none", "")

    def findings(self, component_id: str, family: AnomalyFamily) -> list[Finding]:
        """Return a component's states that are out of order and explain a family's symptoms."""
        if component_id not in self.bad:
            return []
        found = []
        for attribute, known in sorted(self._states.get(component_id, {}).items()):
            rule = BY_ATTRIBUTE.get(attribute)
            if rule is None or rule.family is not family:
                continue
            bad = [
                (r.bad, r.source, r)
                for r in known.readers()
                if r.bad is not None and r.value is not None
            ]
            if not bad:
                continue
            # Of several readers the one that saw it first.
            (before_ns, since_ns), _, one = min(bad, key=lambda b: b[:2])
            shown = one.text if one.text is not None else f"{one.number:g}"
            found.append(
                Finding(
                    kind=rule.kind,
                    family=family,
                    component_id=component_id,
                    before_ns=before_ns,
                    since_ns=since_ns,
                    shown=f"{attribute} is {shown}",
                    disputed=any(
                        r.bad is None and r.value is not None and r.read_ns > since_ns
                        for r in known.readers()
                    ),
                )
            )
        return found

    def lasts(
        self,
        component_id: str,
        kind: str,
        now_ns: int,
        since_ns: int = 0,
        *,
        changed: bool = False,
    ) -> bool:
        """Return whether readers say that a fault of a kind that states alone can show is there.

        Each that is heard must: one that has missed two repetitions is not. And one must have read
        it after a time, and `changed`: something else before. What was always so, as the port of a
        bond that nobody ever connected, is no part of a fault.
        """
        for attribute, first in self._states.get(component_id, {}).items():
            rule = BY_ATTRIBUTE.get(attribute)
            if rule is None or not rule.lasts or rule.kind != kind:
                continue
            heard = [
                r
                for r in first.readers()
                if r.value is not None
                and now_ns - r.arrived_ns <= HEARD_PERIODS * max(r.period_ns, USUAL_PERIOD_NS)
            ]
            if all(r.bad is not None for r in heard) and any(
                r.read_ns >= since_ns and (r.before is not None or not changed) for r in heard
            ):
                return True
        return False

    def read_since(self, component_id: str, attribute: str, since_ns: int) -> bool:
        """Return whether somebody has read an attribute after a time."""
        known = self._states.get(component_id, {}).get(attribute)
        return known is not None and any(
            r.value is not None and r.read_ns > since_ns for r in known.readers()
        )


def _heard(readers: list[_Reading], now_ns: int) -> list[_Reading]:
    """Return the readers of an attribute that are followed beside the one that writes now."""
    heard = [r for r in readers if now_ns - r.arrived_ns <= READER_KEEP_NS]
    heard.sort(key=lambda r: r.arrived_ns, reverse=True)
    return heard[: MAX_READERS - 1]


def _linked(readers: list[_Reading]) -> _Reading:
    """Return the first of some readers, each with the next one as its other."""
    for reader, other in zip_longest(readers, readers[1:]):
        reader.other = other
    return readers[0]


def _out_of_order(rule: Rule, known: _Reading) -> bool:
    if rule.falls:
        return (
            known.number is not None
            and known.before is not None
            and not isinstance(known.before, str)
            and known.number < known.before
        )
    if rule.least is not None:
        return known.number is not None and known.number >= rule.least
    if not rule.usual:
        return known.before is not None and known.before != known.value
    return known.text is not None and known.text not in rule.usual
