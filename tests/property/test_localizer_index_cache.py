"""Ends of paths come, go and move; what is kept up with them is what would be made anew."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.facts import index_cache
from localizer.facts.index_cache import IndexCache
from localizer.facts.roster import Roster
from localizer.network.flow_index import NOTHING, FlowIndex
from localizer.network.paths import PathBook
from localizer.network.replies import ReplyWays
from localizer.network.topology import Topology
from schemas.enums import ComponentKind, TraceCause
from schemas.ids import FlowId
from schemas.records import Component
from schemas.units import SECOND_NS
from tests.unit.localizer.batched import batch_of
from tests.unit.localizer.made import component, endpoint, link, pinglist, small_fabric, trace

ENDS = ("e0", "e1", "e2", "e3")
AGENTS = ("a0", "a1", "a2")
PAIRS = [(a, b) for a in ENDS for b in ENDS if a != b]
# Complete and broken off, with gaps and addresses that come and go with ends.
WAYS = ("l0 s0 l1 T", "l0 s1 l1 T", "l1 s0 l0 T", "l0 - l1 T", "v0 r0 l0 x l1 r1 T", "l0 T", "T")
# Those of which rows of arrays may be kept, and some that look like them.
WHOLE = (
    "l0 s0 l1 T",
    "l0 s1 l1 T",
    "v0 l0 s0 l1 v1 T",
    "l0 T",
    "T",
    "l0 x l1 T",
    "l0 l0 l1 T",
    "l1 s0 l0 T",
    "h0 l0 T",
)
BROKEN = ("l0 s0 -", "l0 x -", "l0 s1 l1 T", "x", "l0 - l1 -", "- s0", "l0 s0 l1 -")
PARENTS = ("r0", "r1", "r2", "h0", "e0", None)
ADDRESSES = ((), ("@x",), ("@s0",), ("@T",))

Step = tuple[Any, ...]
ends = st.sampled_from(ENDS)
step = st.one_of(
    st.tuples(st.just("end"), ends, st.sampled_from(PARENTS), st.sampled_from(ADDRESSES)),
    st.tuples(st.just("end"), ends, st.sampled_from(PARENTS[:3]), st.just(())),
    st.tuples(st.just("gone"), ends),
    st.tuples(st.just("odd"), ends, st.sampled_from([ComponentKind.SWITCH, ComponentKind.RNIC])),
    st.tuples(st.just("fabric"), st.sampled_from(["l0--s1", "r0", "v0", "l1--r1", "l2--r2"]),
              st.booleans()),
    st.tuples(st.just("register"), ends, st.sampled_from([None, *AGENTS])),
    st.tuples(st.just("list"), st.sampled_from(AGENTS),
              st.lists(st.sampled_from(PAIRS), max_size=6, unique=True)),
    st.tuples(st.just("trace"), st.sampled_from(PAIRS), st.integers(0, 1), st.sampled_from(WAYS),
              st.booleans()),
    st.tuples(st.just("broken"), st.sampled_from(PAIRS), st.integers(0, 1),
              st.sampled_from(BROKEN)),
    st.tuples(st.just("batch"), st.lists(
        st.tuples(st.sampled_from(PAIRS), st.integers(0, 1), st.sampled_from((*WHOLE, *BROKEN)),
                  st.booleans(), st.sampled_from(TraceCause)), min_size=1, max_size=8)),
    # As a storm, and after it.
    st.tuples(st.just("batch"), st.sampled_from(("l0 s0 -", "l0 s1 -", WHOLE[0], WHOLE[1])).map(
        lambda way: [(p, f, way, False, TraceCause.LOSS) for p in PAIRS for f in (0, 1)])),
    st.tuples(st.just("forget"), st.sets(ends)),
    st.tuples(st.just("look")),
)  # fmt: skip

# Everybody is there, probes everybody, and is traced.
SETUP: list[Step] = [
    *(("end", e, f"r{n % 3}", ()) for n, e in enumerate(ENDS)),
    *(("register", e, f"a{n % 3}") for n, e in enumerate(ENDS)),
    *(("list", a, [p for p in PAIRS if p[0] in ENDS[n::3]]) for n, a in enumerate(AGENTS)),
    ("batch", [(p, f, WHOLE[(n + f) % 2], False, TraceCause.DISCOVERY)
               for n, p in enumerate(PAIRS) for f in (0, 1)]),
    ("look",),
]  # fmt: skip


def fabric() -> Topology:
    """Return three hosts, the third of which is bonded to two leaves."""
    made = small_fabric(spines=2)
    for one in (
        component("h2", ComponentKind.HOST, addresses=()),
        component("r2", ComponentKind.RNIC, parent="h2"),
        component("l2", ComponentKind.SWITCH),
        link("l2", "s0"), link("r2", "l2"), link("r2", "l1"),
    ):  # fmt: skip
        made.set_component(one)
    return made


class Kept:
    """Everything that follows the steps."""

    def __init__(self, *, batched: bool) -> None:
        self._batched = batched
        self.topology = fabric()
        self.roster, self.paths = Roster(), PathBook(self.topology)
        self.cache = IndexCache(self.roster, self.paths, self.topology)
        self._parts: dict[str, Component] = {c.component_id: c for c in self.topology}

    def take(self, number: int, step: Step) -> None:
        """Do a step, but do not look."""
        match step:
            case "register", who, agent:
                self.roster.set_endpoint(who, endpoint(who, agent) if agent else None)
            case "list", agent, pairs:
                made = pinglist(agent, pairs, flows=2, version=number)
                self.roster.set_pinglist(agent, made if pairs else None)
            case "trace", pair, flow, way, late:
                at = (1_000 - number if late else 1_000 + number) * SECOND_NS
                hops = way.replace("T", pair[1])
                self.paths.add_trace(trace(hops, at=at, flow=flow, ends=pair))
            case "batch", traces:
                self._take_batch(number, traces)
            case "forget", gone:
                self.paths.forget_ends(gone)
            case "broken", pair, flow, way:
                at, hops = (1_000 + number) * SECOND_NS, way.replace("T", pair[1])
                self.paths.add_trace(trace(hops, at=at, flow=flow, ends=pair, complete=False))
            case _:
                self._take_component(step)

    def _take_component(self, step: Step) -> None:
        """Change the topology, or nothing."""
        match step:
            case "end", who, parent, more:
                self.topology.set_component(
                    component(who, ComponentKind.ENDPOINT, parent=parent,
                              addresses=(f"@{who}", *more))
                )  # fmt: skip
            case "gone", who:
                self.topology.remove_component(who)
            case "odd", who, kind:
                self.topology.set_component(component(who, kind, parent="h0"))
            case "fabric", what, there:
                if there:
                    self.topology.set_component(self._parts[what])
                else:
                    self.topology.remove_component(what)

    def _take_batch(self, number: int, traces: list[Any]) -> None:
        """Add traces, as one batch or one by one."""
        made = [
            trace(
                way.replace("T", pair[1]),
                flow=flow,
                ends=pair,
                cause=cause,
                complete=way not in BROKEN,
                at=(1_000 - number if late else 1_000 + number) * SECOND_NS + place,
            )
            for place, (pair, flow, way, late, cause) in enumerate(traces)
        ]
        if self._batched:
            self.paths.add_batch(batch_of(made), number)
            return
        for one in made:
            self.paths.add_trace(one, number)

    def look(self) -> dict[str, Any]:
        """Return all that decisions are made of."""
        self.cache.refresh()
        replies = self.cache.replies()
        # Not that of the refresh, if most numbers were of what had left.
        index = replies._index
        keys = [(*pair, flow) for pair in PAIRS for flow in (0, 1)]
        crossed = [name for name in index.components if index.count(name)]
        self.paths.look_up(keys[::2])
        crossed_by = {key: self.paths.components(key, 1_000 * SECOND_NS) for key in keys}
        assert all(
            self.paths.components(key, 1_000 * SECOND_NS) is c for key, c in crossed_by.items()
        )
        self.paths.look_up_findings([(key, 1_001 * SECOND_NS) for key in keys[::2]])
        return {
            # First, while paths are still rows of arrays.
            "components": crossed_by,
            "account": {key: self.paths.findings_since(key, 1_001 * SECOND_NS) for key in keys},
            "rows": rows(index),
            "crossing": {name: index.count(name) for name in crossed},
            "through": {name: through(index, name) for name in crossed},
            "fabric": {
                name for name in crossed
                if replies.in_fabric(np.array([index.components[name]]))[0]
            },
            "alike": alike(index, replies),
            "replies": {pair: replies.shares(*pair) for pair in PAIRS},
            "deserted": self.roster.deserted_agents(),
            "paths": {key: self.paths.path(key) for key in keys},
            "before": {key: self.paths.path(key, 1_000 * SECOND_NS) for key in keys},
            "probes": {key: self.paths.hop_probes(key, 0, 1_001 * SECOND_NS) for key in keys},
            "unknown": self.paths.unknown_addresses,
            "traced": {key: self.paths.traced_ns(key) for key in keys},
        }  # fmt: skip


def rows(index: FlowIndex) -> dict[FlowId, tuple[str, str, tuple[str, ...]]]:
    """Return prober, responder and components of each row."""
    found = {}
    for key, place in index.by_key.items():
        prober, responder, *crossed = index.rows[place].tolist()
        through = tuple(index.name(n) for n in crossed if n != NOTHING)
        found[key] = index.name(prober), index.name(responder), through
    return found


def through(index: FlowIndex, component_id: str) -> set[FlowId]:
    """Return the 5-tuples that cross a component, by the postings."""
    return {index.key(p) for p in index.rows_with(index.components[component_id]).tolist()}


def alike(index: FlowIndex, replies: ReplyWays) -> dict[str, set[str]]:
    """Return by endpoint which others the ways of replies take for joined to the same leaves."""
    ends = sorted({end for key in index.by_key for end in key[:2]})
    groups = replies.groups_of(np.array([index.endpoints[e] for e in ends], np.int32)).tolist()
    return {a: {b for b, g in zip(ends, groups, strict=True) if g == one}
            for a, one in zip(ends, groups, strict=True)}  # fmt: skip


@settings(max_examples=150)
@given(st.lists(step, max_size=50), st.sampled_from([0, 1_024]))
def test_what_is_kept_up_is_what_is_made_anew(more: list[Step], first: int) -> None:
    """Rows, crossings, paths, single hops and ways of replies, looked at in between or at the end.

    Traces come one by one or many at once, of which rows of arrays are kept.
    With endpoints numbered anew whenever some left, or never.
    """
    steps = [*SETUP, *more]
    before, index_cache.SPARE_NUMBERS = index_cache.SPARE_NUMBERS, first  # type: ignore[misc]
    least, index_cache.LEAST = index_cache.LEAST, 1  # type: ignore[misc]
    try:
        kept = Kept(batched=True)
        for number, one in enumerate(steps):
            kept.take(number, one)
            if one == ("look",):
                assert kept.look() == anew(steps[: number + 1])
        assert kept.look() == anew(steps)
        for key, place in kept.cache.refresh().by_key.items():
            assert kept.cache.refresh().row_of(key, kept.paths.path(key).components) == place
    finally:
        index_cache.SPARE_NUMBERS = before  # type: ignore[misc]
        index_cache.LEAST = least  # type: ignore[misc]


def anew(steps: list[Step]) -> dict[str, Any]:
    """Return what is seen by who looks for the first time after all steps, one by one."""
    made = Kept(batched=False)
    for number, one in enumerate(steps):
        made.take(number, one)
    return made.look()
