"""Which states of components are reported, and when. Pure.

A word or a setting is reported when it changes. A measured number (a rate, or a count in a
window) changes all the time: it is reported when it has changed by half. Every state is reported
again once a minute, so that a reader can see that somebody still looks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from probers.clock import Instant

REPEAT_NS: Final = 60 * 10**9
# A measured number is reported at once when it has changed by this factor.
REPORT_FACTOR: Final = 1.5
# A measured number that has changed by less than this factor is still at the level that began at
# `changed_at`: a window of six readings shows a sixth of a new rate first, and that is its onset.
LEVEL_FACTOR: Final = 8.0
MEASURED_SUFFIX: Final = "_per_s"
MEASURED: Final = frozenset({"link_flaps"})


@dataclass(frozen=True, slots=True)
class Value:
    """A word, a number, or the reason why there is neither."""

    text: str | None = None
    number: float | None = None
    missing_reason: str | None = None

    @property
    def same(self) -> tuple[str | None, float | None]:
        """What is compared: two unknown values are the same whatever their reasons."""
        return self.text, self.number


def missing(reason: str) -> Value:
    """Return an unknown value."""
    return Value(missing_reason=reason)


@dataclass(frozen=True, slots=True)
class StateReport:
    """One state to publish."""

    component_id: str
    attribute: str
    value: Value
    changed_us: int
    observed_us: int


@dataclass(slots=True)
class _Known:
    """What was reported of one state."""

    # The value reported last, and when on the monotonic clock.
    reported: Value
    reported_ns: int
    # The value at the time of the last change, for numbers that move within their level.
    level: Value
    changed_us: int


class ReportedStates:
    """What was reported last about each attribute of each component."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

    def observe(
        self, component_id: str, values: Mapping[str, Value], now: Instant
    ) -> list[StateReport]:
        """Observe values of a component by attribute; return those that are to be reported now."""
        return [
            StateReport(component_id, attribute, value, known.changed_us, now.epoch_us)
            for attribute, value in values.items()
            if (known := self._changed((component_id, attribute), value, now)) is not None
        ]

    def _changed(self, key: tuple[str, str], value: Value, now: Instant) -> _Known | None:
        """Update what is known of an attribute; return it if it is to be reported, else None."""
        known = self._known.get(key)
        if known is None:
            known = _Known(value, now.monotonic_ns, value, now.epoch_us)
            self._known[key] = known
            return known
        measured = key[1].endswith(MEASURED_SUFFIX) or key[1] in MEASURED
        if _moved(known.level, value, LEVEL_FACTOR if measured else 1.0):
            known.level, known.changed_us = value, now.epoch_us
        elif not (
            now.monotonic_ns - known.reported_ns >= REPEAT_NS
            or _moved(known.reported, value, REPORT_FACTOR if measured else 1.0)
        ):
            return None
        known.reported, known.reported_ns = value, now.monotonic_ns
        return known


def _moved(a: Value, b: Value, factor: float) -> bool:
    """Return whether two values differ; numbers above zero differ by at least the factor."""
    if a.number is None or b.number is None or min(a.number, b.number) <= 0 or factor == 1.0:
        return a.same != b.same
    return max(a.number, b.number) >= factor * min(a.number, b.number)
