"""Anomalies from onset to end, and changes of component states."""

from dataclasses import dataclass, replace

from localizer.facts.states import BY_ATTRIBUTE
from schemas.enums import AnomalyState
from schemas.records import Anomaly, ComponentState


@dataclass(frozen=True, slots=True)
class AnomalySpan:
    """An anomaly and how long it lasted; times in microseconds since the epoch.

    Attributes
    ----------
    worst
        Of its records the one with the highest value.
    cleared_at
        When it ended; None: it has not, or nobody said so yet.
    """

    onset_at: int
    last_at: int
    worst: Anomaly
    cleared_at: int | None = None

    @classmethod
    def after(cls, known: "AnomalySpan | None", record: Anomaly) -> "AnomalySpan":
        """Return the anomaly after one more record of it."""
        cleared = record.event_at if record.state is AnomalyState.CLEARED else None
        if known is None:
            return cls(record.onset_at, record.event_at, record, cleared)
        higher = (record.value or 0.0) > (known.worst.value or 0.0)
        return replace(
            known,
            last_at=max(known.last_at, record.event_at),
            worst=record if higher and cleared is None else known.worst,
            cleared_at=cleared,
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """A state that changed.

    Attributes
    ----------
    at
        When, microseconds since the epoch.
    before, after
        What was read, for people; `before` is None at the first reading.
    disorder
        The kind of fault that it means now; None: it is in order, or says nothing by itself.
    """

    at: int
    component_id: str
    attribute: str
    source: str
    before: str | None
    after: str
    disorder: str | None


def shown_state(state: ComponentState) -> str:
    """Return what a state says, for people."""
    if state.missing_reason is not None and state.text is None and state.number is None:
        return f"not readable: {state.missing_reason}"
    if state.text is not None:
        return state.text
    return "–" if state.number is None else f"{state.number:.6g}"


def disorder(state: ComponentState, before: ComponentState | None = None) -> str | None:
    """Return the kind of fault that a state means by itself; None: it is in order."""
    rule = BY_ATTRIBUTE.get(state.attribute)
    if rule is None:
        return None
    if rule.falls:
        fell = (
            before is not None
            and before.number is not None
            and state.number is not None
            and state.number < before.number
        )
        return rule.kind if fell else None
    if rule.least is not None:
        high = state.number is not None and state.number >= rule.least
        return rule.kind if high else None
    if rule.usual:
        odd = state.text is not None and state.text not in rule.usual
        return rule.kind if odd else None
    other = before is not None and before.text is not None and state.text != before.text
    return rule.kind if other and state.text is not None else None


def changed(before: ComponentState | None, after: ComponentState) -> StateChange | None:
    """Return what changed between two readings of one reader; None: nothing worth a line.

    Numbers change with each reading: they count when they go out of order, and when they return.
    """
    odd = disorder(after, before)
    if before is None:
        # The first reading is news only if something is wrong.
        if odd is None:
            return None
    elif (before.text, before.missing_reason) == (after.text, after.missing_reason):
        rule = BY_ATTRIBUTE.get(after.attribute)
        was = disorder(before)
        if rule is None or (odd == was and not (rule.falls and before.number != after.number)):
            return None
    return StateChange(
        at=after.changed_at,
        component_id=after.component_id,
        attribute=after.attribute,
        source=after.source,
        before=None if before is None else shown_state(before),
        after=shown_state(after),
        disorder=odd,
    )
