"""Labels of a fault, which silences and routes go by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from schemas.records import FaultEvent, Silence

COMPONENT: Final = "component"
COMPONENT_KIND: Final = "component_kind"
FAULT_ID: Final = "fault_id"
KIND: Final = "kind"
LAYER: Final = "layer"
SEVERITY: Final = "severity"
TASK: Final = "task"
SILENCE_LABELS: Final = (COMPONENT, COMPONENT_KIND, KIND, LAYER, SEVERITY, TASK, FAULT_ID)
# Least first; a word that is not among them counts as the least.
SEVERITIES: Final = ("info", "warning", "error", "critical")
# A router's rules name tasks by patterns; of more than so many the label says how many there are.
MAX_TASKS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who is paged for what: the first route whose patterns fit.

    Attributes
    ----------
    patterns
        By label, as in a silence.
    """

    name: str
    patterns: Mapping[str, str]


def values_of(fault: FaultEvent) -> dict[str, tuple[str, ...]]:
    """Return the values of each label; a fault may hit several tasks, or none."""
    return {
        COMPONENT: (fault.component_id,),
        COMPONENT_KIND: (fault.component_kind,),
        FAULT_ID: (fault.fault_id,),
        KIND: (fault.fault_kind,),
        LAYER: (fault.layer.value,),
        SEVERITY: (fault.severity,),
        TASK: fault.tasks or ("",),
    }


def fits(fault: FaultEvent, patterns: Iterable[tuple[str, str]]) -> bool:
    """Return whether every pattern fits a value of its label; unknown labels never do.

    Only * and ? mean something: a bracket in a name is a bracket.
    """
    values = values_of(fault)
    return all(
        any(fnmatchcase(value, pattern.replace("[", "[[]")) for value in values.get(label, ()))
        for label, pattern in patterns
    )


def says_nothing(label: str, pattern: str) -> bool:
    """Return whether a pattern is of wildcards alone, so that values do not matter to it.

    Of a task one that asks for a character says something: some faults hit no task.

    >>> [says_nothing("component", "?*"), says_nothing("task", "?*"), says_nothing("task", "**")]
    [True, False, True]
    """
    return not pattern.strip("*" if label == TASK else "*?")


def is_silenced(fault: FaultEvent, silence: Silence, now_us: int) -> bool:
    """Return whether a silence is in force and meant for a fault."""
    if not silence.from_at <= now_us < silence.until_at:
        return False
    return fits(fault, ((m.label, m.pattern) for m in silence.matchers))


def owner_of(fault: FaultEvent, owners: Iterable[Owner]) -> str | None:
    """Return the owner of a fault; None: nobody's."""
    return next((o.name for o in owners if fits(fault, o.patterns.items())), None)


def rank(severity: str) -> int:
    """Return how severe a fault is, to compare."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def joined_tasks(tasks: Iterable[str]) -> str:
    """Return tasks as one label; of many their number."""
    names = sorted(set(tasks))
    return ",".join(names) if len(names) <= MAX_TASKS else f"{len(names)} tasks"
