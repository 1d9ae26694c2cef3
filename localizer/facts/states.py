"""Component states, and which of them are out of order.

The rules are data: for each attribute what is out of order, which family of symptoms it explains,
and the kind of fault that it means. A state that changed at about the onset of the symptoms is
strong evidence for a fault; an older one only names the kind of a fault that the probes found.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from schemas.enums import AnomalyFamily
from schemas.records import ComponentState
from schemas.units import SECOND_NS, us_to_ns

# A state that changed up to this long before the first symptom belongs to it: a queue takes time to
# fill, and 5-tuples to be probed.
BEFORE_NS: Final = 120 * SECOND_NS
# And up to this long after it: agents report states within seconds. A later change is another
# event.
AFTER_NS: Final = 30 * SECOND_NS
MAX_STATES: Final = 1_000_000
MAINTENANCE: Final = "maintenance"


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
    """

    attribute: str
    kind: str
    family: AnomalyFamily
    usual: frozenset[str] = frozenset()
    least: float | None = None
    falls: bool = False


def _words(attribute: str, kind: str, family: AnomalyFamily, *usual: str) -> Rule:
    return Rule(attribute=attribute, kind=kind, family=family, usual=frozenset(usual))


def _number(attribute: str, kind: str, family: AnomalyFamily, least: float) -> Rule:
    return Rule(attribute=attribute, kind=kind, family=family, least=least)


LOSS, LATE = AnomalyFamily.LOSS, AnomalyFamily.LATENCY
RULES: Final[tuple[Rule, ...]] = (
    _words("device", "device_gone", LOSS, "present"),
    _words("port_state", "port_down", LOSS, "up", "active"),
    _words("container", "container_crash", LOSS, "running"),
    _words("gid_table", "gid_change", LOSS),
    _words("bond", "bond_error", LOSS, "active", "none"),
    _number("link_flaps", "port_flapping", LOSS, 2),
    _number("crc_errors_per_s", "crc_error", LOSS, 1),
    _number("acl_denied_per_s", "acl_error", LOSS, 1),
    _number("pause_frames_per_s", "pfc_deadlock", LOSS, 1_000),
    _number("discards_per_s", "buffer_loss", LOSS, 10),
    Rule(attribute="pcie_width", kind="pcie_downgrade", family=LATE, falls=True),
    Rule(attribute="pcie_speed_gts", kind="pcie_downgrade", family=LATE, falls=True),
    _number("pcie_errors_per_s", "pcie_error", LATE, 1),
    _words("gpudirect", "gpudirect_missing", LATE, "loaded", "dma-buf"),
    _words("transport", "not_using_rdma", LATE, "rdma"),
    _words("hugepages", "hugepage_mismatch", LATE, "match"),
    _words("congestion_control", "congestion_control_off", LATE, "on"),
    _words("acs", "acs_ats_wrong", LATE, "disabled"),
    _number("flow_evictions_per_s", "repetitive_offload", LATE, 1),
    _number("egress_utilization", "congestion", LATE, 0.9),
)
BY_ATTRIBUTE: Final = {rule.attribute: rule for rule in RULES}
# Kinds that probes alone cannot identify.
SPECIFIC: Final = frozenset({rule.kind for rule in RULES} | {"not_offloaded"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A state that is out of order; `since_ns` when it became so."""

    rule: Rule
    component_id: str
    since_ns: int
    shown: str


@dataclass(frozen=True, slots=True)
class _Known:
    text: str | None
    number: float | None
    since_ns: int
    # The last known value before this one: a device that returns is compared with what it was.
    before: float | str | None

    @property
    def value(self) -> float | str | None:
        return self.number if self.text is None else self.text

    @property
    def unknown(self) -> bool:
        return self.value is None


class StateBook:
    """The latest states of all components; `refused` counts records beyond the bound."""

    def __init__(self) -> None:
        self.version = 0
        self.refused = 0
        self._count = 0
        self._states: defaultdict[str, dict[str, _Known]] = defaultdict(dict)

    def __len__(self) -> int:
        return self._count

    def set_state(self, state: ComponentState) -> None:
        """Apply a state."""
        known = self._states.get(state.component_id, {}).get(state.attribute)
        if known is None:
            if self._count >= MAX_STATES:
                self.refused += 1
                return
            self._count += 1
        elif (known.text, known.number) == (state.text, state.number):
            return
        before = None if known is None else known.before if known.unknown else known.value
        self._states[state.component_id][state.attribute] = _Known(
            state.text, state.number, us_to_ns(state.changed_at), before
        )
        self.version += 1

    def remove_state(self, state_id: str) -> None:
        """Forget a state by its id, `<component>|<attribute>`."""
        component_id, _, attribute = state_id.rpartition("|")
        if self._states.get(component_id, {}).pop(attribute, None) is not None:
            if not self._states[component_id]:
                del self._states[component_id]
            self._count -= 1
            self.version += 1

    def in_maintenance(self, component_id: str) -> bool:
        """Return whether an operator has marked the component."""
        known = self._states.get(component_id, {}).get(MAINTENANCE)
        return known is not None and known.text not in (None, "none", "")

    def findings(self, component_id: str, family: AnomalyFamily) -> list[Finding]:
        """Return a component's states that are out of order and explain a family's symptoms."""
        found = []
        for attribute, known in sorted(self._states.get(component_id, {}).items()):
            rule = BY_ATTRIBUTE.get(attribute)
            if rule is not None and rule.family is family and _out_of_order(rule, known):
                shown = known.text if known.text is not None else f"{known.number:g}"
                found.append(Finding(rule, component_id, known.since_ns, f"{attribute} is {shown}"))
        return found

    def fresh(self, component_id: str, family: AnomalyFamily, onset_ns: int) -> list[Finding]:
        """Return the findings that began at about the onset of the symptoms."""
        if component_id not in self._states:
            return []
        return [
            f
            for f in self.findings(component_id, family)
            if onset_ns - BEFORE_NS <= f.since_ns <= onset_ns + AFTER_NS
        ]


def _out_of_order(rule: Rule, known: _Known) -> bool:
    if known.unknown:
        return False
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
