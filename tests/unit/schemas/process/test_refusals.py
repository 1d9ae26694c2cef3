"""Refusals are logged once a minute."""

from typing import Any

import pytest

from schemas.process.eventlog import EventLog
from schemas.process.refusals import RefusalLog


class Lines(EventLog):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        """Keep a line."""
        self.lines.append((event, fields))


def test_a_line_a_minute_says_what_was_refused_since_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is refused meanwhile stands in the next line; nothing refused, no line."""
    lines = Lines()
    log, now_s = RefusalLog(lines), [1_000.0]
    monkeypatch.setattr("schemas.process.refusals.time.monotonic", lambda: now_s[0])
    log.observe_counts({"agents": 0, "traces": 0})
    log.observe_counts({"agents": 3, "traces": 0})
    log.observe_counts({"agents": 5, "traces": 1})
    assert lines.lines == [("records.beyond_bounds", {"agents": 3})]
    now_s[0] += 61
    log.observe_counts({"agents": 5, "traces": 1})
    now_s[0] += 61
    log.observe_counts({"agents": 5, "traces": 1})
    assert lines.lines[1:] == [("records.beyond_bounds", {"agents": 2, "traces": 1})]
