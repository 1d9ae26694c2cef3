"""`docs/reference/kinds.md`: kinds of fault and the states that name them, from the localizer."""

from collections.abc import Iterator
from typing import Final

from localizer.facts.findings import LEAD_NS
from localizer.facts.states import MAINTENANCE, PERIODS, RULES, Rule
from localizer.verdict.catalogue import (
    AGENT,
    HANG_GROUPS,
    HOST_GROUPS,
    KINDS,
    LATENCY,
    LOSS,
    OVERLAY,
    FaultKind,
)
from schemas.units import SECOND_NS

INTRODUCTION: Final = """\
# Kinds of fault

<!-- Written by `python -m ops.docs` from the catalogue of kinds and the rules of states. -->

A verdict (`fault.event.v1`) names a component and, in `fault_kind`, one of these kinds. Probes,
traces and flow tables find the component; states of components (`component.state.v1`, open to any
writer) name the kind. Agents write the states of RNICs and hosts ([states](host-states.md));
nothing in this project reads switches. Without a state the component is just as certain, and the
kind is one that probes alone can show.
"""

STATES: Final = f"""

## States

Attributes of `component.state.v1` that the localizer understands, the values that are out of
order, and the kind that they name. A reading shows that something went out of order since the
reading before, or since {PERIODS} of its reader's periods if some are missing; the period is the
median distance of what the reader wrote of this attribute. If that may have been when probes went
bad, or up to {LEAD_NS // SECOND_NS} s before, it helps to tell components apart: the more the
shorter the time between both readings. What was out of order before only names the kind of a fault
that the probes have found, what went out of order later says nothing. What a second reader
(`source`) sees in order later says less. Words are in `text`, numbers in `number`. `{MAINTENANCE}`
with any text but `none`, whoever wrote it last, prevents verdicts on the component, on what its
host holds, and on its cables.

"""
SEEN_BY: Final = {
    LOSS: "lost probes; traces that break off",
    LATENCY: "windows of round trips; late hops of traces",
    OVERLAY: "lost probes; replay of the flow tables",
    **dict.fromkeys(HOST_GROUPS, "heartbeats"),
    **dict.fromkeys(HANG_GROUPS, "records of the job's collectives, processes and sockets"),
    AGENT: "heartbeats; probes of its endpoints",
}
BY_TABLES: Final = {
    "not_offloaded": "entries that are not offloaded",
    "repetitive_offload": "or entries that leave the hardware again and again",
}


def page() -> str:
    """Return the page."""
    return "\n".join([INTRODUCTION, *_kinds()]) + STATES + "\n".join(_states()) + "\n"


def _kinds() -> Iterator[str]:
    yield "| kind | layer | severity | what is wrong | evidence needed | first step |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS.values():
        layer = "of the component" if kind.layer is None else kind.layer.value.lower()
        yield (
            f"| `{kind.name}` | {layer} | {kind.severity} | {kind.symptom} "
            f"| {_evidence(kind)} | {kind.runbook} |"
        )


def _evidence(kind: FaultKind) -> str:
    states = [f"`{rule.attribute}`" for rule in RULES if rule.kind == kind.name]
    tables = [BY_TABLES[kind.name]] if kind.name in BY_TABLES else []
    return "; ".join([SEEN_BY[kind.group], *states, *tables])


def _states() -> Iterator[str]:
    yield "| attribute | out of order | kind |"
    yield "|---|---|---|"
    for rule in RULES:
        yield f"| `{rule.attribute}` | {_when(rule)} | `{rule.kind}` |"


def _when(rule: Rule) -> str:
    if rule.falls:
        return "less than before"
    if rule.least is not None:
        return f"{rule.least:g} or more"
    if rule.usual:
        return "anything but " + ", ".join(f"`{word}`" for word in sorted(rule.usual))
    return "any change"
