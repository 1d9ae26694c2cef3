"""How often hardware loses flows that are in use, told from consecutive readings. Pure.

An entry that vanishes from the offloaded table and returns was evicted, or made
invalid, and put in again: the packets between went through software. Readings are
half a minute apart, so what comes and goes between two of them is not seen: the
number is a lower bound, and 0 for entries that merely ended.
"""

from collections.abc import Collection, Iterable
from typing import Final

from probers.overlay.wire import Finding

# An entry that returns later than that was idle, or its job had a pause.
RETURN_NS: Final = 300 * 10**9


class EvictionMeter:
    """Counts entries that have vanished from hardware and are back."""

    def __init__(self) -> None:
        self._offloaded: frozenset[str] = frozenset()
        self._gone_ns: dict[str, int] = {}
        self._looked_ns: int | None = None

    def take(
        self, findings: Iterable[Finding], asked: Collection[str], now_ns: int
    ) -> float | None:
        """Return evictions per second since the last reading; None: this is the first.

        `asked` are the addresses that were looked for: of others nothing was learnt.

        >>> from probers.overlay.wire import Way
        >>> there = [Finding("10.0.0.9", Way.TUNNEL, remote="10.9.0.9", offloaded=True)]
        >>> meter, s = EvictionMeter(), 10**9
        >>> looks = ((there, 0), ([], 30), (there, 60))
        >>> [meter.take(found, {"10.0.0.9"}, at * s) for found, at in looks]
        [None, 0.0, 0.03333333333333333]
        """
        offloaded = frozenset(f.address for f in findings if f.offloaded)
        returned = [a for a in offloaded if a in self._gone_ns]
        for address in self._offloaded - offloaded:
            self._gone_ns[address] = now_ns
        self._gone_ns = {
            address: since_ns
            for address, since_ns in self._gone_ns.items()
            if address in asked and address not in offloaded and now_ns - since_ns <= RETURN_NS
        }
        before_ns, self._looked_ns, self._offloaded = self._looked_ns, now_ns, offloaded
        if before_ns is None or now_ns <= before_ns:
            return None
        return len(returned) * 10**9 / (now_ns - before_ns)
