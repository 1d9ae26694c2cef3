"""When 5-tuples were traced last: as long as it is evidence."""

from collections import defaultdict
from typing import Final

from localizer.traces import FlowKey
from localizer.units import SECOND_NS

# Longer than any verdict waits.
EVIDENCE_NS: Final = 120 * SECOND_NS


class TraceTimes:
    """Times of the latest traces, second by second."""

    def __init__(self) -> None:
        self._newest_ns = 0
        self._oldest_s = 0
        self._traced_ns: dict[FlowKey, int] = {}
        self._traced_in: defaultdict[int, set[FlowKey]] = defaultdict(set)

    def note(self, key: FlowKey, traced_ns: int) -> None:
        """Remember when a 5-tuple was traced; forget what is no evidence any more."""
        before_ns = self._traced_ns.get(key)
        if before_ns is not None and before_ns // SECOND_NS != traced_ns // SECOND_NS:
            self._traced_in[before_ns // SECOND_NS].discard(key)
        self._traced_ns[key] = traced_ns
        self._traced_in[traced_ns // SECOND_NS].add(key)
        self._newest_ns = max(self._newest_ns, traced_ns)
        oldest = (self._newest_ns - EVIDENCE_NS) // SECOND_NS
        while self._oldest_s < oldest:
            for gone in self._traced_in.pop(self._oldest_s, ()):
                del self._traced_ns[gone]
            # Seconds without a trace are skipped.
            self._oldest_s = min(oldest, min(self._traced_in, default=oldest))

    def since(self, since_ns: int, most: int) -> list[FlowKey]:
        """Return the 5-tuples that were traced since then, sorted: of more, the latest."""
        found: list[FlowKey] = []
        for second in sorted(self._traced_in, reverse=True):
            if second < since_ns // SECOND_NS or len(found) >= most:
                break
            found += sorted(k for k in self._traced_in[second] if self._traced_ns[k] >= since_ns)
        return sorted(found[:most])

    def of(self, key: FlowKey) -> int | None:
        """Return when a 5-tuple was traced last; None: never, or so long ago that it is over."""
        return self._traced_ns.get(key)

    def none_since(self, key: FlowKey, since_ns: int) -> bool:
        """Say whether it is certain that a 5-tuple was not traced since then."""
        at_ns = self._traced_ns.get(key)
        return (self._oldest_s * SECOND_NS if at_ns is None else at_ns + 1) <= since_ns

    def forget(self, key: FlowKey) -> None:
        """Forget a 5-tuple."""
        at_ns = self._traced_ns.pop(key, None)
        if at_ns is not None:
            self._traced_in[at_ns // SECOND_NS].discard(key)
