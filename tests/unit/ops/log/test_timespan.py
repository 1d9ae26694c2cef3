"""What people write for a time becomes a place in the log."""

import pytest

from ops.log.timespan import BEGINNING, END, Bound, iso_ms, parse_bound

NOW_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", BEGINNING),
        ("end", END),
        ("-10m", Bound("time", NOW_MS - 600_000)),
        ("-1h30m", Bound("time", NOW_MS - 5_400_000)),
        ("-250ms", Bound("time", NOW_MS - 250)),
        ("+5m", Bound("time", NOW_MS + 300_000)),
        ("-99999d", Bound("time", 0)),
        ("2026-01-01", Bound("time", NOW_MS)),
        ("2026-01-01T00:00:00Z", Bound("time", NOW_MS)),
        ("2026-01-01T02:00:00.5+02:00", Bound("time", NOW_MS + 500)),
    ],
)
def test_bounds(text: str, expected: Bound) -> None:
    """Words, distances and ISO times are understood; times without zone are UTC."""
    assert parse_bound(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "10m", "-10", "-10x", "yesterday", "2026-13-01"])
def test_nonsense_is_refused_with_what_there_is(text: str) -> None:
    """Whatever else is written is refused, and the message lists the forms."""
    with pytest.raises(ValueError, match="'beginning', 'end', ISO time"):
        parse_bound(text, NOW_MS)


def test_times_no_calendar_has_are_shown_as_numbers() -> None:
    """A garbage timestamp is shown, not a reason to fail."""
    assert iso_ms(2**62) == str(2**62)
