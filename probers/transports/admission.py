"""Notices a flood of probes, and decides which sources the kernel passes until it ends. Pure.

A host that answers needs all probes of its peers, and can read some ten thousand packets a second.
Beyond that only known sources pass (and, with a key, who has its token), and a sample of the
others, by which a new peer is still found.
"""

from typing import Final

from probers.transports.packet_filter import MAX_KNOWN
from schemas.units import SECOND_NS

# So many packets of strangers in so short a time are a flood: twice what is answered. A job of a
# thousand peers with four 5-tuples each that begins within 300 ms is none.
FLOOD_PACKETS: Final = 2_000
FLOOD_NS: Final = SECOND_NS // 10
# The flood is over when less is offered; of a flood about so many a second are sampled.
QUIET_HZ: Final = 6_000
SAMPLE_HZ: Final = 500
# The first share of a flood that is sampled, before it has been measured for a second.
FIRST_SHARE: Final = 1 / 256
# Without a key a source is known when its probes have come for so long: peers go on, floods with
# ever new sources do not.
PROVEN_NS: Final = 2 * SECOND_NS
# More than any agent sends from one port to one other: ten rounds a second, each probe repeated
# ten times, and a trace.
SOURCE_HZ: Final = 200
# A source that is silent for so long makes room for another one.
STALE_NS: Final = 300 * SECOND_NS


class Admission:
    """What passes at one socket that answers.

    Sources are 31-bit hashes of address and port.

    Attributes
    ----------
    restricted : whether a flood is on
    share : share of the probes of unknown sources that is to pass while it is
    trusts_tokens : whether probes with the token of the cluster's key pass; strangers who have
        read it on the wire may flood with it
    """

    def __init__(self, *, sealed: bool) -> None:
        self.restricted = False
        self.share = 1.0
        self.trusts_tokens = sealed
        self._sealed = sealed
        # When each was last seen; when each candidate was first seen.
        self._known: dict[int, int] = {}
        self._candidates: dict[int, int] = {}
        # Known sources that sent too much, until the flood is over.
        self._banned: set[int] = set()
        self._counts: dict[int, int] = {}
        # Of the current tenth of a second.
        self._burst = 0
        self._burst_ns = 0
        # Of the current reading.
        self._read = 0
        self._read_strangers = 0
        # Of the current second.
        self._strangers = 0
        self._strangers_with_token = 0
        self._window_ns = 0
        self._strangers_since_look = 0
        self._looked_ns: int | None = None

    @property
    def known(self) -> frozenset[int]:
        """Sources that always pass."""
        return frozenset(self._known)

    def observe_probe(self, source: int, now_ns: int, *, genuine: bool, token: bool) -> None:
        """Observe a packet at the socket.

        `genuine`: it is a probe, sealed if the cluster has a key; `token`: with the key's token.
        """
        if now_ns - self._window_ns >= SECOND_NS:
            self._begin_window(now_ns)
        self._read += 1
        if source in self._known or (genuine and self._proves(source, now_ns)):
            self._known[source] = now_ns
            count = self._counts[source] = self._counts.get(source, 0) + 1
            if count <= SOURCE_HZ:
                return
            del self._known[source]
            self._banned.add(source)
        if now_ns - self._burst_ns >= FLOOD_NS:
            self._burst, self._burst_ns = 0, now_ns
        self._burst += 1
        self._read_strangers += 1
        self._strangers += 1
        self._strangers_with_token += token

    def review(self, now_ns: int, *, overflowed: bool) -> bool:
        """Return whether other packets are to pass from now on; after each reading of the socket.

        `overflowed`: the reading left packets in the socket, and the kernel has dropped some. Then
        the agent is starved, and any number of strangers is too much.
        """
        starved = overflowed and 2 * self._read_strangers > self._read
        self._read = self._read_strangers = 0
        if not starved and self._burst < FLOOD_PACKETS:
            return False
        if not self.restricted:
            self.restricted, self.share = True, FIRST_SHARE
        elif self.trusts_tokens and 2 * self._strangers_with_token > self._strangers:
            self.trusts_tokens = False
        else:
            self.share /= 16
        self._begin_window(now_ns)
        return True

    def look(self, now_ns: int, dropped: int | None) -> bool:
        """Adapt to the flood, once a second; return whether other packets are to pass from now on.

        `dropped` is how many packets the kernel has dropped since the last look.
        """
        before_ns, self._looked_ns = self._looked_ns, now_ns
        strangers, self._strangers_since_look = self._strangers_since_look + self._strangers, 0
        self._strangers = self._strangers_with_token = 0
        if not self.restricted:
            self._banned.clear()
            return False
        if before_ns is None or now_ns <= before_ns:
            return False
        offered_hz = (strangers + (dropped or 0)) * SECOND_NS / (now_ns - before_ns)
        if offered_hz < QUIET_HZ:
            self.restricted, self.share, self.trusts_tokens = False, 1.0, self._sealed
        else:
            self.share = min(1.0, SAMPLE_HZ / offered_hz)
        return True

    def _begin_window(self, now_ns: int) -> None:
        self._strangers_since_look += self._strangers
        self._burst = self._strangers = self._strangers_with_token = 0
        self._counts.clear()
        self._window_ns = now_ns

    def _proves(self, source: int, now_ns: int) -> bool:
        """Return whether a genuine probe makes its source known, if there is room."""
        if source in self._banned or not self._has_room(now_ns):
            return False
        if self._sealed or self.restricted:
            # Without a key the sources of a flood would prove themselves by going on.
            return self._sealed
        first_ns = self._candidates.setdefault(source, now_ns)
        if now_ns - first_ns >= PROVEN_NS:
            del self._candidates[source]
            return True
        if len(self._candidates) > MAX_KNOWN:
            del self._candidates[next(iter(self._candidates))]
        return False

    def _has_room(self, now_ns: int) -> bool:
        if len(self._known) < MAX_KNOWN:
            return True
        stale = [s for s, seen_ns in self._known.items() if now_ns - seen_ns >= STALE_NS]
        for source in stale:
            del self._known[source]
        return bool(stale)
