"""The input of a diagnoser: windows of observations, built from the records of the topics alone.

The same that a deployment has: rounds of probes, traces, topology, flow tables. Nothing
here knows the truth, or which way the arena routes.

A window holds the rounds that began in its time by the simulation's clock, not the agents': a
host whose clock is off (the published system has PTP) makes no diagnoser stumble. It is handed
over when the last of them is over, with the traces that are there by then.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from arena.simulation.agents import AgentRound
from arena.simulation.setup import Rec
from arena.simulation.timeline import Slice
from localizer.facts.overlay import FlowTables
from localizer.network.paths import PathBook
from localizer.network.topology import Topology
from schemas import topics
from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.ids import FlowId
from schemas.records import Component, FlowTable
from schemas.units import SECOND_NS
from streams.columns.quantities import ROUND_TRIP

# What 007, deTector and the published detector work on.
WINDOW_NS: Final = 30 * SECOND_NS
# A round begins up to a second into its second, sends for 0.8 s, and its last probe may be sent
# again twice, 0.5 s apart: rarely longer than this after the window.
REACH_NS: Final = 2 * SECOND_NS
QUARTILES: Final = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class Network:
    """What the records have said so far of the network: the graph, and the hosts' flow tables."""

    topology: Topology
    tables: FlowTables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Observations of all 5-tuples probed in a stretch of time, as columns of one length.

    Attributes
    ----------
    begin_ns, end_ns : of the window
    flows : (src, dst, flow) of each 5-tuple, ascending
    sent, lost : probes, those that were sent again after a loss included, shape (n,)
    starts, rtt_ns : round trips of 5-tuple i in ns: `rtt_ns[starts[i]:starts[i + 1]]`, ascending
    quartiles_ns : of the round trips, shape (n, 3); nan where nothing was answered
    components : what each 5-tuple's newest complete trace crosses, both ends' virtual
        switches and RNICs included; empty where there is no trace yet
    network : topology and flow tables, as known at the end of the window
    new_components, new_tables : records of them since the window before
    """

    begin_ns: int
    end_ns: int
    flows: tuple[FlowId, ...]
    sent: Int64s
    lost: Int64s
    starts: Int64s
    rtt_ns: Int64s
    quartiles_ns: Floats
    components: tuple[tuple[str, ...], ...]
    network: Network
    new_components: tuple[Component, ...] = ()
    new_tables: tuple[FlowTable, ...] = ()

    def __len__(self) -> int:
        return len(self.flows)

    @property
    def told_ns(self) -> int:
        """When it is handed over, and a verdict on it can be had."""
        return self.end_ns + REACH_NS

    def rtts_ns(self, place: int) -> Int64s:
        """Return the round trips of one 5-tuple in ns, ascending."""
        found: Int64s = self.rtt_ns[self.starts[place] : self.starts[place + 1]]
        return found


class Observer:
    """Makes windows of the records of one scenario, second by second.

    Parameters
    ----------
    window_ns
        Length of a window: whole seconds.
    """

    def __init__(self, window_ns: int = WINDOW_NS) -> None:
        if window_ns < SECOND_NS or window_ns % SECOND_NS:
            raise ValueError(f"window_ns={window_ns}: whole seconds, at least one")
        self.window_ns = window_ns
        self._topology = Topology()
        self._paths = PathBook(self._topology)
        self._network = Network(self._topology, FlowTables(self._topology))
        self._begin_ns: int | None = None
        self._end_ns = 0
        self._rounds: list[AgentRound] = []
        self._early: deque[Rec] = deque()
        self._components: list[Component] = []
        self._tables: list[FlowTable] = []

    def second(self, part: Slice) -> list[Window]:
        """Observe a second; return the window that ends with it, if one does."""
        if self._begin_ns is None:
            self._begin_ns = part.begin_ns
        self._end_ns = part.begin_ns + SECOND_NS
        # Slices hold records some seconds before their time; nobody has them then.
        self._early.extend(part.records)
        while self._early and self._early[0].at_ns < self._end_ns + REACH_NS:
            self._record(self._early.popleft())
        self._rounds += part.rounds
        if self._end_ns - self._begin_ns < self.window_ns:
            return []
        return [self._close(self._begin_ns)]

    def finish(self) -> list[Window]:
        """Return the last window, cut short by the end of the scenario, if there is one."""
        return [] if self._begin_ns is None else [self._close(self._begin_ns)]

    def _record(self, rec: Rec) -> None:
        if rec.record is None:
            return
        if rec.topic == topics.PATH_TRACE.name:
            self._paths.add_trace(rec.record)
        elif rec.topic == topics.TOPOLOGY.name:
            self._topology.set_component(rec.record)
            self._components.append(rec.record)
        elif rec.topic == topics.OVERLAY_FLOWS.name:
            self._network.tables.set_table(rec.record)
            self._tables.append(rec.record)

    def _close(self, begin_ns: int) -> Window:
        columns = [made.columns() for made in self._rounds]
        # As the worker keys them: the prober, then the 5-tuple.
        probed = list(chain.from_iterable(c.keys for c in columns))
        flows = sorted({(src, dst, flow) for _, src, dst, flow in set(probed)})
        number = {key: n for n, key in enumerate(flows)}
        place = {key: number[key[1:]] for key in set(probed)}
        paths = self._paths
        none = np.zeros(0, np.int64)
        window = window_of(
            begin_ns=begin_ns,
            end_ns=self._end_ns,
            flows=flows,
            owner=np.array([place[key] for key in probed], np.int64),
            ok=np.concatenate([none.astype(np.bool_), *(c.ok for c in columns)]),
            rtt_ns=np.concatenate([none, *(np.maximum(c.values[ROUND_TRIP], 0) for c in columns)]),
            components=tuple(
                paths.components(key) if paths.is_traced(key) else () for key in flows
            ),
            network=self._network,
            new_components=tuple(self._components),
            new_tables=tuple(self._tables),
        )
        self._rounds, self._components, self._tables = [], [], []
        self._begin_ns = None
        return window


def window_of(
    *,
    begin_ns: int,
    end_ns: int,
    flows: Sequence[FlowId],
    owner: Int64s,
    ok: Bools,
    rtt_ns: Int64s,
    components: tuple[tuple[str, ...], ...],
    network: Network,
    new_components: tuple[Component, ...] = (),
    new_tables: tuple[FlowTable, ...] = (),
) -> Window:
    """Return the window of these probes.

    Parameters
    ----------
    flows
        5-tuples in ascending order.
    owner, ok, rtt_ns
        Of each probe, in any order: place of its 5-tuple, whether it was answered, round trip
        (anything where it was not); shapes (probes,).
    components
        What each 5-tuple crosses.
    """
    count = len(flows)
    sent = np.bincount(owner, minlength=count).astype(np.int64)
    whose, trips = owner[ok], rtt_ns[ok]
    trips = trips[np.lexsort((trips, whose))]
    answered = np.bincount(whose, minlength=count).astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(answered)])
    return Window(
        begin_ns=begin_ns, end_ns=end_ns, flows=tuple(flows), sent=sent, lost=sent - answered,
        starts=starts, rtt_ns=trips, quartiles_ns=quantiles(trips, starts, QUARTILES),
        components=components, network=network, new_components=new_components,
        new_tables=new_tables,
    )  # fmt: skip


def joined(windows: Sequence[Window]) -> Window:
    """Return windows that follow each other as one; what its 5-tuples cross is left out."""
    flows = sorted({key for window in windows for key in window.flows})
    place = {key: n for n, key in enumerate(flows)}
    owners, oks, trips = [], [], []
    for window in windows:
        mine = np.array([place[key] for key in window.flows], np.int64)
        answered = np.diff(window.starts)
        owners += [np.repeat(mine, answered), np.repeat(mine, window.lost)]
        oks += [np.ones(int(answered.sum()), np.bool_), np.zeros(int(window.lost.sum()), np.bool_)]
        trips += [window.rtt_ns, np.zeros(int(window.lost.sum()), np.int64)]
    return window_of(
        begin_ns=windows[0].begin_ns, end_ns=windows[-1].end_ns, flows=flows,
        owner=np.concatenate(owners), ok=np.concatenate(oks), rtt_ns=np.concatenate(trips),
        components=((),) * len(flows), network=windows[-1].network,
    )  # fmt: skip


def quantiles(values: Int64s, starts: Int64s, shares: tuple[float, ...]) -> Floats:
    """Return quantiles of many ascending runs, interpolated as numpy does.

    Parameters
    ----------
    values
        The runs one after another.
    starts
        Where run i begins, and at n where the last one ends, shape (n + 1,).

    Returns
    -------
    ndarray
        Shape (n, shares); nan for an empty run.
    """
    count = np.diff(starts)
    found = np.full((len(count), len(shares)), np.nan)
    some = count > 0
    for column, share in enumerate(shares):
        place = share * (count[some] - 1)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, count[some] - 1)
        first = starts[:-1][some]
        below, above = values[first + low], values[first + high]
        found[some, column] = below + (above - below) * (place - low)
    return found
