"""How often hardware loses flows."""

import pytest

from probers.overlay.watch import RETURN_NS, EvictionMeter
from probers.overlay.wire import Finding, Way
from schemas.units import SECOND_NS

ASKED = frozenset({"a", "b"})


def there(*addresses: str) -> list[Finding]:
    """Return findings of addresses that hardware has."""
    return [Finding(a, Way.TUNNEL, remote="10.9.0.9", offloaded=True) for a in addresses]


def test_entries_that_return_were_evicted() -> None:
    """One of two comes back after it was in software for a reading."""
    meter = EvictionMeter()
    slow = Finding("a", Way.TUNNEL, remote="10.9.0.9", offloaded=False)
    assert meter.observe_reading(there("a", "b"), ASKED, 0) is None
    assert meter.observe_reading([slow, *there("b")], ASKED, 30 * SECOND_NS) == 0.0
    assert meter.observe_reading(there("a", "b"), ASKED, 40 * SECOND_NS) == pytest.approx(0.1)
    assert meter.observe_reading(there("a", "b"), ASKED, 70 * SECOND_NS) == 0.0


def test_entries_that_end_or_return_late_were_not() -> None:
    """Jobs pause and end."""
    meter = EvictionMeter()
    meter.observe_reading(there("a", "b"), ASKED, 0)
    meter.observe_reading(there("b"), ASKED, 30 * SECOND_NS)
    assert meter.observe_reading(there("b"), ASKED, RETURN_NS + 40 * SECOND_NS) == 0.0
    assert meter.observe_reading(there("a", "b"), ASKED, RETURN_NS + 70 * SECOND_NS) == 0.0


def test_who_was_not_asked_for_is_not_gone() -> None:
    """A destination that leaves the ping list and comes back was never evicted."""
    meter = EvictionMeter()
    meter.observe_reading(there("a", "b"), ASKED, 0)
    assert meter.observe_reading(there("b"), {"b"}, 30 * SECOND_NS) == 0.0
    assert meter.observe_reading(there("a", "b"), ASKED, 60 * SECOND_NS) == 0.0
