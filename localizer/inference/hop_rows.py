"""Single probes of traces as rows of observations, kept from decision to decision.

A fault that lasts is decided upon every second, and from one decision to the next a few 5-tuples
are traced anew. So what the traces of a 5-tuple say is kept, with all that it was derived from, and
derived again only if any of that has changed; the rows are then put together by numpy. The result
is that of deriving everything anew, to the last bit: the weights of a row are added up in the same
order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.facts.liveness import ONSET_SLACK_NS
from localizer.inference.causes import Columns, PossibleColumns
from localizer.inference.observations import LATE_CHANCE, ResolvedFaults
from localizer.inference.tables import Block, PossibleCrossings
from localizer.network.flow_index import FlowIndex
from localizer.network.paths import TraceBasis
from localizer.network.replies import ReplyWays
from localizer.network.traces import HopProbe
from schemas.columns.arrays import Bools, Floats
from schemas.enums import AnomalyFamily
from schemas.ids import FlowId
from schemas.units import SECOND_NS

# Age up to which traces are evidence: a fault may have changed since.
HOPS_NS: Final = 60 * SECOND_NS
# A hop is late if its round trip rose by this share of the rise of whole round trips: each
# direction takes half of it, and a hop's answer may come back another way.
HOP_LATE_SHARE: Final = 0.3
# Probability that the probes of traces that a switch did not answer were lost to the fault of the
# cable behind it. A switch that has lost the way on says so in place of the answer, also to each of
# the job's own packets, and says it only so often: Linux five times and then once a second to a
# sender. So the silences of one switch are no independent observations: together they have this
# probability. It knows that the way is lost only where the port is down, and then both ends are.
SILENCED_CHANCE: Final = 0.5
PORT: Final = "port_state"
# 5-tuples whose traces are read though they are not looked at as bad ones. Mostly these say that
# packets pass, which good 5-tuples say as well.
MAX_OTHERS: Final = 1_024
# Number of traces read: of many 5-tuples only the latest of each. Six traces of one 5-tuple differ
# less than one trace each of six, and reading them dominates a storm's decision.
MAX_TRACES: Final = 8_192
# Rows are numbered anew when so many, and most of all, are of no use any more.
SPARE_ROWS: Final = 4_096
NONE: Final[frozenset[str]] = frozenset()

# Outcome, columns that are crossed for certain, those with some probability only, and those of
# which a fault may have silenced the hop.
Row = tuple[bool, tuple[int, ...], PossibleColumns, tuple[int, ...]]


class _Basis(NamedTuple):
    """What a 5-tuple's rows are derived from, beside the columns and the ways of replies.

    `judges_target`: whether a target that does not answer counts. `joined`: components on its way
    whose port is known to be up since the onset; None if it is not cut off.
    """

    traces: TraceBasis
    onset_ns: int
    prober: str
    responder: str | None
    passed_before: frozenset[str]
    judges_target: bool
    joined: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the traces of a 5-tuple say: rows by their numbers, and what each adds to its weight.

    It holds for the same `basis`, for the same `shares` of reply ways if they were looked up, and
    where a hop is late if its rise is above a limit between `low_ns` and `high_ns`.
    """

    basis: _Basis
    shares: Mapping[str, float] | None
    low_ns: float
    high_ns: float
    rows: list[int]
    weights: list[float]


class HopRows:
    """The rows of one family's decisions."""

    def __init__(self, family: AnomalyFamily) -> None:
        self._family = family
        self._column: Columns | None = None
        self._numbers: dict[Row, int] = {}
        self._rows: list[Row] = []
        self._kept: dict[FlowId, _Kept] = {}

    def forget(self) -> None:
        """Forget everything; the next block is derived anew."""
        self._column, self._numbers, self._rows, self._kept = None, {}, [], {}

    def block(
        self,
        sources: Sources,
        bad: list[BadFlow],
        column: Columns,
        *,
        index: FlowIndex,
        replies: ReplyWays,
        explained: frozenset[FlowId],
        known: frozenset[str],
        resolved: ResolvedFaults,
        onset_ns: int,
        now_ns: int,
    ) -> Block:
        """Return single probes of traces as observations.

        Parameters
        ----------
        index
            What all probed 5-tuples cross.
        explained
            5-tuples whose traces do not count.
        known
            What open faults blame. What it lost before it let everything pass again, as a port
            that flaps does, nothing else is to explain.
        resolved
            What resolved faults account for.
        onset_ns
            Since when there is something to explain: what got through before says nothing of it.

        Returns
        -------
        Block
            Probes since the onset; their lag is 1.
        """
        if column is not self._column or len(self._rows) > SPARE_ROWS + 2 * sum(
            len(kept.rows) for kept in self._kept.values()
        ):
            # Rows are numbered by columns.
            self.forget()
            self._column = column
        onset_ns -= ONSET_SLACK_NS
        since_ns = max(onset_ns, now_ns - HOPS_NS)
        shifts = [s.shift_ns for flow in bad for s in flow.symptoms if s.shift_ns is not None]
        late_ns = HOP_LATE_SHARE * median(shifts) if shifts else 0.0
        flows = {flow.key: flow for flow in bad}
        paths, roster = sources.paths, sources.roster
        loses = self._family is AnomalyFamily.LOSS
        # Agents trace every loss at once, also on 5-tuples that no test has flagged yet.
        mine = [k for k in flows if (paths.traced_ns(k) or 0) >= since_ns]
        others = paths.traced_since(since_ns, MAX_OTHERS + 1, among=lambda k: k not in flows)
        if len(others) > MAX_OTHERS:
            crosses = crossing(column, index)
            others = paths.traced_since(
                since_ns, MAX_OTHERS, among=lambda k: k not in flows and crosses(k)
            )
        keys = sorted({*mine, *others})
        latest = max(1, MAX_TRACES // max(1, len(keys)))
        ports = _Ports(sources, onset_ns)
        clear = known.difference(column.components)
        before, self._kept = self._kept, {}
        for key in keys:
            if key in explained or not clear.isdisjoint(paths.components(key)):
                continue
            flow = flows.get(key)
            if flow is not None:
                prober, responder = flow.prober, flow.responder
                passed_before = flow.passed_before
                # Where only the target is silent, the reply may be lost on its own way.
                judges_target = column.reply is None or not flow.replyless
            else:
                prober, responder = roster.agent_of(key[0]) or "", roster.agent_of(key[1])
                # That the target does not answer is its agent's problem.
                passed_before, judges_target = NONE, False
            # An anomaly may be older than a resolved fault; traces from before the resolution
            # belong to it.
            own_ns = (
                since_ns
                if self._family is AnomalyFamily.LATENCY
                else max(since_ns, resolved.until_ns(key) + 1)
            )
            traces = paths.basis_of(key, own_ns, latest)
            cut = loses and (flow is None or flow.cut)
            joined = ports.up_among(paths.components(key)) if cut else None
            basis = _Basis(
                traces, onset_ns, prober, responder, passed_before, judges_target, joined
            )
            kept = before.get(key)
            if (
                kept is None
                or not kept.low_ns <= late_ns < kept.high_ns
                or kept.basis != basis
                or (kept.shares is not None and kept.shares != replies.shares(*key[:2]))
            ):
                probes = paths.hop_probes(key, own_ns, onset_ns, latest)
                kept = self._derive(key, probes, late_ns, basis, column=column, replies=replies)
            self._kept[key] = kept
        return self._block()

    def _derive(
        self,
        key: FlowId,
        probes: list[HopProbe],
        late_ns: float,
        basis: _Basis,
        *,
        column: Columns,
        replies: ReplyWays,
    ) -> _Kept:
        """Derive what the traces of a 5-tuple say."""
        found = _outcomes(self._family, probes, late_ns)
        bad_count = Counter(probe.traced_ns for probe, outcome in found if outcome)
        shares: Mapping[str, float] | None = None
        rows: list[int] = []
        weights: list[float] = []
        for probe, outcome in found:
            if probe.target and outcome and not basis.judges_target:
                continue
            certain = probe.components
            if basis.passed_before:
                certain = tuple([c for c in certain if c not in basis.passed_before])
            responder = basis.responder if probe.target else None
            crossed = column.certain_columns(certain, basis.prober, responder)
            if not outcome:
                rows.append(self._number((False, crossed, (), ())))
                weights.append(1.0)
                continue
            possible_shares: dict[str, float] = {}
            if probe.target:
                # The target's answer may be lost on its own way back.
                shares = replies.shares(*key[:2])
                possible_shares |= shares
            if basis.passed_before:
                possible_shares |= dict.fromkeys(
                    basis.passed_before.intersection(probe.components), LATE_CHANCE
                )
            possible = column.possible_columns(possible_shares, crossed) if possible_shares else ()
            silenced: tuple[int, ...] = ()
            if basis.joined is not None and basis.joined.isdisjoint(probe.beyond):
                others = {*crossed, *(place for place, _ in possible)}
                places = map(column.components.get, probe.beyond)
                silenced = tuple([p for p in places if p is not None and p not in others])
            rows.append(self._number((True, crossed, possible, silenced)))
            # All hops behind a delay are late: together they count as one observation per trace.
            weights.append(1.0 / bad_count[probe.traced_ns])
        rises = [] if self._family is AnomalyFamily.LOSS else [p.rise_ns or 0 for p, _ in found]
        return _Kept(
            basis,
            shares,
            max([rise for rise in rises if rise <= late_ns], default=-inf),
            min([rise for rise in rises if rise > late_ns], default=inf),
            rows,
            weights,
        )

    def _number(self, row: Row) -> int:
        number = self._numbers.setdefault(row, len(self._rows))
        if number == len(self._rows):
            self._rows.append(row)
        return number

    def _block(self) -> Block:
        """Return the rows that are kept, in the order in which they first occur."""
        kept = self._kept.values()
        numbers = np.fromiter(chain.from_iterable(one.rows for one in kept), np.int64)
        weights = np.fromiter(chain.from_iterable(one.weights for one in kept), np.float64)
        distinct, first = np.unique(numbers, return_index=True)
        used = distinct[np.argsort(first)]
        place = np.empty(len(self._rows), np.int64)
        place[used] = np.arange(len(used))
        rows = [self._rows[number] for number in used.tolist()]
        # In the order of the numbers, as one would add them up.
        weight = np.bincount(place[numbers], weights, len(used)).astype(np.float64)
        possible = [
            (row, *entry)
            for row, (one, chance) in enumerate(
                zip(rows, silenced_chances(rows, weight), strict=True)
            )
            for entry in (*one[2], *((column, chance) for column in one[3]))
        ]
        return Block(
            bad=np.array([row[0] for row in rows], np.bool_),
            weight=weight,
            lag=np.ones(len(used)),
            rows=np.repeat(np.arange(len(rows)), [len(row[1]) for row in rows]),
            columns=np.fromiter(chain.from_iterable(row[1] for row in rows), np.int64),
            possible=PossibleCrossings(
                rows=np.array([m[0] for m in possible], np.int64),
                columns=np.array([m[1] for m in possible], np.int64),
                chance=np.array([m[2] for m in possible], np.float64),
            ),
        )


class _Ports:
    """Which components have a port that is known to be up since a time."""

    def __init__(self, sources: Sources, since_ns: int) -> None:
        self._states = sources.states
        self._since_ns = since_ns
        self._known: dict[str, bool] = {}

    def up_among(self, components: Iterable[str]) -> frozenset[str]:
        """Return which of some components have one."""
        return frozenset([c for c in components if self._is_up(c)])

    def _is_up(self, component_id: str) -> bool:
        known = self._known.get(component_id)
        if known is None:
            states = self._states
            known = self._known[component_id] = states.read_since(
                component_id, PORT, self._since_ns
            ) and not any(
                finding.shown.startswith(PORT)
                for finding in states.findings(component_id, AnomalyFamily.LOSS)
            )
        return known


def silenced_chances(rows: Sequence[Row], weight: Floats) -> list[float]:
    """Return for each row with which probability a fault behind the hop silenced it.

    Such that all together have `SILENCED_CHANCE` that the same components may have silenced.

    Parameters
    ----------
    weight
        How many probes a row stands for, shape (rows,).
    """
    together: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for row, count in zip(rows, weight.tolist(), strict=True):
        together[row[3]] += count
    return [SILENCED_CHANCE ** (1.0 / max(1.0, together[row[3]])) for row in rows]


def crossing(column: Columns, index: FlowIndex) -> Callable[[FlowId], bool]:
    """Return what says of a 5-tuple whether it crosses a candidate cause, as far as is known."""
    if column.global_cause is not None:
        return lambda _: True
    used = np.zeros(len(index.crossing), np.bool_)
    for known, names in (
        (index.components, column.components),
        (index.probers, column.probers),
        (index.responders, column.responders),
    ):
        used[[known[name] for name in names if name in known]] = True
    crosses: Bools = np.logical_or.reduce(used[index.rows], axis=1)
    place = index.by_key.get
    return lambda key: (row := place(key)) is None or bool(crosses[row])


def _outcomes(
    family: AnomalyFamily, probes: list[HopProbe], late_ns: float
) -> list[tuple[HopProbe, bool]]:
    """Return for each probe that says something about the family whether it was bad."""
    if family is AnomalyFamily.LOSS:
        return [(probe, not probe.answered) for probe in probes]
    return [(probe, probe.rise_ns > late_ns) for probe in probes if probe.rise_ns is not None]
