"""The last minute of every 5-tuple: counts per second in rings, times of rare losses in lists.

The minute is one of active time (`streams.core.clock`): results count when they arrive, so that no
agent's clock matters. All of it is a function of the results that arrived in the last minute, never
of what was decided: a restart rebuilds it from the log.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Int32s, Int64s
from schemas.process.names import shared
from schemas.units import SECOND_NS
from streams.columns.quantities import QUANTITIES, ROUND_TRIP
from streams.columns.rounds import MISSING, NEVER_NS, TRANSPORT_CODES, FlowKey, RoundColumns
from streams.columns.slots import MOST
from streams.columns.table import Column, Table
from streams.detectors.late_answers import LATE_NS, LATE_SPAN_S, LateAnswers, Side

# Length of the rings in seconds, and of all tests on them.
RING_S: Final = 60
# A power of two above RING_S.
SLOTS: Final = 64
# If so many probes of a 5-tuple in a round are all lost, it is an outage, not a sample of a rate.
OUTAGE_PROBES: Final = 3
SortKey = tuple[str, str, int, str]
# A larger share of new 5-tuples is sorted in with all others, a smaller one put in one by one.
FEW_NEW: Final = 0.01
Ring = NDArray[np.uint16]
RINGS: Final = ("sampled", "sent", "lost")
# Answers of a 5-tuple whose round trips are kept.
LATEST: Final = 12
_FIELDS: Final = [quantity.field for quantity in QUANTITIES]
# Columns of `RecentProbes.flows` with a host's number, and the quantity that is its delay.
HOST_DELAYS: Final = (
    ("prober", _FIELDS.index("prober_delay_ns")),
    ("responder", _FIELDS.index("responder_delay_ns")),
)


class RecentProbes:
    """5-tuples of a partition and what they sent in the last minute.

    Parameters
    ----------
    active_ns
        Active time; the rings end there.
    """

    def __init__(self, active_ns: int = 0) -> None:
        self.flows: Table[FlowKey] = Table(
            {
                # Active time of the latest result.
                "last_ns": Column(np.int64, NEVER_NS),
                "transport": Column(np.int8, 0),
                "cut_off": Column(np.int8, 0),
                # Set by a detector; where it is not 0, detectors observe all results of the
                # 5-tuple (`streams.detectors.base.ResultBatch`).
                "watched": Column(np.int8, 0),
                # Number of the last round that the kernel counted (`streams.core.absorb`).
                "last_round": Column(np.int64, 0),
                # The 5-tuple's probes and losses in that round.
                "probes": Column(np.int32, 0),
                "losses": Column(np.int32, 0),
                # Numbers of its agent and of its target in `late_answers`.
                "prober": Column(np.int32, 0),
                "responder": Column(np.int32, 0),
                # Place of the next answer in `latest`.
                "turn": Column(np.int8, 0),
            }
        )
        self.late_answers = LateAnswers(SLOTS)
        # (late, all) answers of hosts, by number, as of the second in front.
        self._late_counts: tuple[int, dict[int, tuple[int, int]]] = 0, {}
        # By second first: the 5-tuples of a round lie side by side, and so does what a new
        # second clears.
        # Nobody probes a 5-tuple 65,536 times in a second; who claims it is counted from 0 again.
        self.rings: dict[str, Ring] = {
            name: np.zeros((SLOTS, self.flows.capacity), np.uint16) for name in RINGS
        }
        # Round trips of the last answers, by place first; negative: not so many came yet.
        self.latest: Int32s = np.full((LATEST, self.flows.capacity), MISSING, np.int32)
        # Rows by agent, source and destination, for tests over all 5-tuples of a path. By their
        # hash, which several paths may have: a key of its own for each path takes twice as much.
        # One row stands by itself.
        self._paths: dict[int, int | tuple[int, ...]] = {}
        # Of the losses that count as samples, second of arrival and sending time, by row.
        self._losses: dict[int, list[tuple[int, int]]] = {}
        # Rows in the order of source, destination, flow and agent; new ones beside it until asked
        # for.
        self._order: list[int] = []
        self._new: list[int] = []
        self._rank = np.zeros(0, np.int64)
        self.head_s = active_ns // SECOND_NS

    def rows(self, keys: list[FlowKey]) -> Int64s:
        """Return the rows of the 5-tuples, making those that are new."""
        found = self.flows.find_all(keys)
        if None in found:
            for key in keys:
                if self.flows.find(key) is None:
                    row = self._new_row(key)
                    self._enter_path(key, row)
            found = self.flows.find_all(keys)
        return np.array(found, np.int64)

    def known_rows(self, keys: list[FlowKey]) -> tuple[Int64s, Bools]:
        """Return the rows of those 5-tuples that are there, and which they are."""
        found = self.flows.find_all(keys)
        here = np.array([row is not None for row in found], np.bool_)
        return np.array([row for row in found if row is not None], np.int64), here

    def known_key(self, key: FlowKey) -> FlowKey:
        """Return the key that is kept for a 5-tuple already, or this one; from any thread."""
        return self.flows.kept(key)

    def advance(self, active_ns: int) -> None:
        """Move the rings on to the second of `active_ns`."""
        head_s = active_ns // SECOND_NS
        steps = min(head_s - self.head_s, SLOTS)
        if steps <= 0:
            return
        fresh = [second % SLOTS for second in range(head_s - steps + 1, head_s + 1)]
        for ring in (*self.rings.values(), self.late_answers.ring):
            ring[fresh] = 0
        self.head_s = head_s

    def count_round(self, columns: RoundColumns, rows: Int64s, active_ns: int) -> None:
        """Count the results of a round that arrived now; `advance` comes before."""
        flows, slot = self.flows, self.head_s % SLOTS
        flows["transport"][rows] = [TRANSPORT_CODES[t] for t in columns.transport]
        flows["last_ns"][rows] = active_ns
        lost = ~columns.ok
        # Usually each 5-tuple stands in a round once: sums over it need no grouping.
        once = len(set(rows.tolist())) == len(rows)
        sample = self._single_samples(rows) if once else self._samples(rows, lost)
        _count(self.rings["sent"][slot], rows, once=once)
        _count(self.rings["sampled"][slot], rows[sample], once=once)
        for host, quantity in HOST_DELAYS:
            late = (columns.values[quantity] >= LATE_NS) & columns.ok
            if late.any():
                self.late_answers.count(slot, flows[host][rows[late]])
        self._keep_latest(rows[columns.ok], columns.values[ROUND_TRIP][columns.ok])
        if lost.any():
            _count(self.rings["lost"][slot], rows[lost], once=once)
            for index in np.flatnonzero(sample & lost).tolist():
                self.note_loss(int(rows[index]), int(columns.sent_ns[index]), self.head_s)

    def is_counted_loss(self, row: int, sent_ns: int) -> bool:
        """Return whether the loss of that probe is a sample within the rings."""
        return any(sent_ns == lost_ns for _, lost_ns in self._losses.get(row, ()))

    def sampled(self, row: int, span_s: int) -> tuple[int, int]:
        """Return (sent, lost) first probes of the last `span_s` seconds."""
        sent = int(self.rings["sampled"][self._slots(span_s), row].sum())
        return sent, len(self.loss_times(row, span_s))

    def path_sampled(self, row: int, span_s: int) -> tuple[int, int]:
        """Return the same, summed over all 5-tuples of the row's path."""
        rows = self.path_rows(row)
        sent = int(self.rings["sampled"][np.ix_(self._slots(span_s), rows)].sum())
        return sent, sum(len(self.loss_times(r, span_s)) for r in rows)

    def path_rows(self, row: int) -> list[int]:
        """Return the rows of all 5-tuples of the row's path, in order of the flow."""
        path = self.flows.key(row)[:3]
        keys = [(self.flows.key(r), r) for r in self._rows_of(hash(path))]
        return [r for key, r in sorted(keys) if key[:3] == path]

    def loss_times(self, row: int, span_s: int) -> list[int]:
        """Return sending times of the counted losses of the last `span_s` seconds."""
        losses = self._losses.get(row, [])
        first = bisect_left(losses, (self.head_s - span_s + 1, 0))
        return [sent_ns for _, sent_ns in losses[first:]]

    def last_loss_s(self, row: int) -> int | None:
        """Return the second in which the last counted loss became known, None for none."""
        losses = self._losses.get(row)
        return losses[-1][0] if losses else None

    def totals(self, row: int, span_s: int) -> tuple[int, int]:
        """Return (sent, lost) of all probes, re-probes too, of the last `span_s` seconds."""
        slots = self._slots(span_s)
        return int(self.rings["sent"][slots, row].sum()), int(self.rings["lost"][slots, row].sum())

    def late_counts(self, row: int, side: Side) -> tuple[int, int]:
        """Return the (late, all) answers of a 5-tuple's prober or responder in the last seconds.

        Those of all its 5-tuples together. Without late ones none are counted.
        """
        number = int(self.flows[side.value][row])
        if self._late_counts[0] != self.head_s:
            self._late_counts = self.head_s, {}
        known = self._late_counts[1]
        if number not in known:
            slots = self._slots(LATE_SPAN_S + 1)[:-1]
            late, answers = self.late_answers.late(slots, number), 0
            if late:
                # Those of free rows, too: they have sent nothing.
                alike = np.flatnonzero(self.flows[side.value] == number)
                where = np.ix_(np.array(slots), alike)
                sent, lost = (int(self.rings[name][where].sum()) for name in ("sent", "lost"))
                answers = max(sent - lost, late)
            known[number] = late, answers
        return known[number]

    def answers(self, row: int) -> int:
        """Return how many answers of a 5-tuple came in the minute before the present second."""
        slots = self._slots(RING_S)[:-1]
        sent, lost = (int(self.rings[name][slots, row].sum()) for name in ("sent", "lost"))
        return sent - lost

    def seconds_since(self, row: int, probes: int) -> int:
        """Return how many seconds ago the first of a 5-tuple's last probes arrived."""
        counts = self.rings["sent"][self._slots(RING_S)[::-1], row].astype(np.int64)
        return int(np.searchsorted(np.cumsum(counts), probes))

    def clean_probes(self, row: int) -> int:
        """Return how many first probes came since the second of the last counted loss."""
        losses = self._losses.get(row)
        if not losses or losses[-1][0] <= self.head_s - RING_S:
            return self.sampled(row, RING_S)[0]
        since = self.head_s - losses[-1][0]
        return int(self.rings["sampled"][self._slots(since), row].sum()) if since > 0 else 0

    def retire(self, before_ns: int, held: Callable[[Int64s], Bools]) -> list[int]:
        """Forget the 5-tuples without results since that active time; return their rows.

        `held` says which of them are needed yet.
        """
        rows = self.flows.rows()
        silent = rows[self.flows["last_ns"][rows] < before_ns]
        gone: list[int] = silent[~held(silent)].tolist() if len(silent) else []
        if gone:
            left = set(gone)
            self._order = [row for row in self._order if row not in left]
            self._new = [row for row in self._new if row not in left]
        for row in gone:
            key = self.flows.key(row)
            self.flows.remove(key)
            self._losses.pop(row, None)
            path = hash(key[:3])
            rest = tuple(other for other in self._rows_of(path) if other != row)
            del self._paths[path]
            if rest:
                self._paths[path] = rest
        if gone:
            kept = self.flows.rows()
            self.late_answers.keep_only(
                np.union1d(self.flows["prober"][kept], self.flows["responder"][kept])
            )
            self._late_counts = self.head_s, {}
        return gone

    def rank(self, rows: Int64s) -> Int64s:
        """Return places of 5-tuples in the order of source, destination, flow and agent.

        Comparable with each other only.
        """
        if self._new:
            if len(self._new) > FEW_NEW * len(self._order):
                self._order += self._new
                self._order.sort(key=self._sort_key)
            else:
                for row in self._new:
                    insort(self._order, row, key=self._sort_key)
            self._new = []
            places = np.array(self._order, np.int64)
            self._rank = np.zeros(self.flows.capacity, np.int64)
            self._rank[places] = np.arange(len(places))
        out: Int64s = self._rank[rows]
        return out

    def _new_row(self, key: FlowKey) -> int:
        used = self.flows.rows_ever
        agent, src, dst, flow = key
        # Each name is that of many 5-tuples.
        row = self.flows.row((shared(agent), shared(src), shared(dst), flow))
        self.flows["prober"][row] = self.late_answers.number(Side.PROBER, agent)
        self.flows["responder"][row] = self.late_answers.number(Side.RESPONDER, dst)
        self._new.append(row)
        if self.flows.capacity > self.rings["sent"].shape[1]:
            for name, ring in self.rings.items():
                self.rings[name] = np.zeros((SLOTS, self.flows.capacity), np.uint16)
                self.rings[name][:, : ring.shape[1]] = ring
            latest = np.full((LATEST, self.flows.capacity), MISSING, np.int32)
            latest[:, : self.latest.shape[1]] = self.latest
            self.latest = latest
        elif used == self.flows.rows_ever:
            # Somebody's before.
            for ring in self.rings.values():
                ring[:, row] = 0
            self.latest[:, row] = MISSING
        return row

    def _keep_latest(self, rows: Int64s, rtt_ns: Int64s) -> None:
        """Keep the round trips of some answers, in order."""
        turns = self.flows["turn"]
        for row, value in zip(rows.tolist(), rtt_ns.tolist(), strict=True):
            self.latest[turns[row], row] = min(max(value, 0), MOST)
            turns[row] = (turns[row] + 1) % LATEST

    def _enter_path(self, key: FlowKey, row: int) -> None:
        path = hash(key[:3])
        known = self._rows_of(path)
        self._paths[path] = (*known, row) if known else row

    def _rows_of(self, path: int) -> tuple[int, ...]:
        """Return the rows of the paths that have this hash."""
        rows = self._paths.get(path, ())
        return rows if isinstance(rows, tuple) else (rows,)

    def _sort_key(self, row: int) -> SortKey:
        agent, src, dst, flow = self.flows.key(row)
        return src, dst, flow, agent

    def _samples(self, rows: Int64s, lost: Bools) -> Bools:
        """Mark the first probe of each 5-tuple, unless it tells of an outage and not of a rate.

        So it does when all probes of its round were lost, and in the round after
        that: the probe that was under way when an outage ended is lost, its
        re-probe comes back, and at once all 5-tuples of a healed link would look
        as if they lost a share.
        """
        present, first, group = np.unique(rows, return_index=True, return_inverse=True)
        probes = np.bincount(group, minlength=len(present))
        losses = np.bincount(group[lost], minlength=len(present))
        outage = (probes >= OUTAGE_PROBES) & (losses == probes)
        marks = np.zeros(len(rows), np.bool_)
        marks[first[~outage & (self.flows["cut_off"][present] == 0)]] = True
        self.flows["cut_off"][present] = outage
        return marks

    def _single_samples(self, rows: Int64s) -> Bools:
        """Mark as `_samples` does where each 5-tuple has one probe: too few for an outage."""
        marks: Bools = self.flows["cut_off"][rows] == 0
        self.flows["cut_off"][rows] = False
        return marks

    def _slots(self, span_s: int) -> list[int]:
        return [s % SLOTS for s in range(self.head_s - span_s + 1, self.head_s + 1)]

    def note_loss(self, row: int, sent_ns: int, second: int) -> None:
        """Remember the loss of a probe that counts as a sample, and when it became known."""
        losses = self._losses.setdefault(row, [])
        losses.append((second, sent_ns))
        while losses[0][0] <= self.head_s - RING_S:
            del losses[0]


def _count(counts: NDArray[np.uint16], rows: Int64s, *, once: bool) -> None:
    """Add one for each row; `once`: no row is there twice."""
    if once:
        counts[rows] += 1
    else:
        np.add.at(counts, rows, 1)
