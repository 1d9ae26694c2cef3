"""Paths from traces, and what single hops say."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from localizer.network import routes
from localizer.network.paths import EVIDENCE_NS, MAX_STRANGERS, PathBook
from localizer.network.routes import derived, traced
from localizer.network.topology import Topology
from schemas.enums import ComponentKind, TraceCause
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START, component, link, small_fabric, trace

KEY = ("e0", "e1", 0)
FULL = "v0 r0 l0 s0 l1 r1 v1 e1"
PARTS = {"v0", "r0", "l0--r0", "l0", "l0--s0", "s0", "l1--s0", "l1", "l1--r1", "r1", "v1"}


def shown(topology: Topology, hops: str, *, complete: bool = True) -> tuple[set[str], bool]:
    """Return components and wholeness of a trace."""
    addresses = tuple(None if h == "-" else f"@{h}" for h in hops.split())
    path = traced(topology, "e0", "e1", addresses, complete=complete)
    return set(path.components), path.whole


def test_a_full_trace_crosses_every_node_and_link() -> None:
    """When every hop answers, all components are known, in order."""
    assert shown(small_fabric(), FULL) == (PARTS, True)


HOPS = ["-", "v0", "r0", "l0", "s0", "s1", "l1", "r1", "v1", "h0", "e0", "?"]


@given(
    hops=st.lists(st.sampled_from(HOPS), max_size=7) | st.just(FULL.split()[:-1]),
    ends=st.tuples(st.sampled_from(["e0", "e1", "x"]), st.sampled_from(["e0", "e1", "x"])),
)
def test_a_walk_without_gaps_is_what_filling_gaps_finds(
    hops: list[str], ends: tuple[str, str]
) -> None:
    """Slow twin: the loop that fills gaps, for every complete trace."""
    topology = small_fabric(spines=2)
    addresses = (*(None if h == "-" else f"@{h}" for h in hops), "@target")
    quick = traced(topology, *ends, addresses, complete=True)
    with patch.object(routes, "_plain", return_value=None):
        assert quick == traced(topology, *ends, addresses, complete=True)


def test_a_trace_of_switches_only_is_completed_by_the_topology() -> None:
    """Virtual switches and RNICs that never answer are crossed all the same."""
    assert shown(small_fabric(), "l0 s0 l1 e1") == (PARTS, True)


def test_a_silent_hop_is_filled_where_only_one_component_fits() -> None:
    """With one spine between two leaves it must have been that one."""
    assert shown(small_fabric(), "v0 r0 l0 - l1 r1 v1 e1") == (PARTS, True)
    assert shown(small_fabric(), "- - l0 s0 - - - e1")[0] == PARTS


def test_a_silent_hop_stays_open_where_two_fit() -> None:
    """With two spines the gap is a gap, and the path is not whole."""
    parts, whole = shown(small_fabric(spines=2), "v0 r0 l0 - l1 r1 v1 e1")
    assert not whole
    assert parts == PARTS - {"l0--s0", "s0", "l1--s0"}


def test_an_incomplete_trace_claims_nothing_beyond_its_last_hop() -> None:
    """What broke off at the leaf has crossed the leaf, and no more."""
    parts, whole = shown(small_fabric(), "v0 r0 l0 -", complete=False)
    assert parts == {"v0", "r0", "l0--r0", "l0"}
    assert not whole


def test_without_a_trace_the_topology_says_what_it_can() -> None:
    """One spine: all is certain; two: the middle is open; unknown endpoints: nothing."""
    path = derived(small_fabric(), "e0", "e1")
    assert (set(path.components), path.whole) == (PARTS, True)
    path = derived(small_fabric(spines=2), "e0", "e1")
    assert (set(path.components), path.whole) == (PARTS - {"l0--s0", "s0", "l1--s0"}, False)
    assert derived(small_fabric(), "x", "y").components == ()


def test_unknown_addresses_are_counted_and_borne() -> None:
    """A hop with a foreign address is a gap; the target's need not be known."""
    book = PathBook(small_fabric())
    book.add_trace(trace("v0 r0 l0 ? l1 r1 v1 nobody"))
    assert book.unknown_addresses == 1
    assert set(book.path(KEY).components) == PARTS


def test_a_path_is_what_it_was_before_the_fault() -> None:
    """Traffic that was routed around does not hide where it went when it broke."""
    book = PathBook(small_fabric(spines=2))
    book.add_trace(trace("v0 r0 l0 s1 l1 r1 v1 e1", at=START + 20 * SECOND_NS))
    book.add_trace(trace(FULL, at=START))
    assert "s1" in book.path(KEY).components
    assert "s0" in book.path(KEY, before_ns=START + 10 * SECOND_NS).components


def test_the_order_in_which_traces_come_does_not_matter() -> None:
    """The newest by its own time counts, not the last that came."""
    forward, backward = PathBook(small_fabric(spines=2)), PathBook(small_fabric(spines=2))
    traces = [trace(FULL.replace("s0", f"s{n % 2}"), at=START + n * SECOND_NS) for n in range(7)]
    for one in traces:
        forward.add_trace(one)
    for one in reversed(traces):
        backward.add_trace(one)
    assert forward.path(KEY) == backward.path(KEY)
    assert "s0" in forward.path(KEY).components


def test_a_topology_that_comes_late_is_used() -> None:
    """A trace read before its components gets its path once they are there."""
    topology = Topology()
    book = PathBook(topology)
    book.add_trace(trace(FULL))
    assert book.path(KEY).components == ()
    for part in small_fabric():
        topology.set_component(part)
    assert set(book.path(KEY).components) == PARTS


def test_an_incomplete_trace_says_where_packets_die() -> None:
    """Hops before the break answered, the first one after it did not."""
    book = PathBook(small_fabric())
    book.add_trace(trace(FULL, at=START))
    book.add_trace(trace("v0 r0 l0 -", at=START + 5 * SECOND_NS, complete=False))
    probes = book.hop_probes(KEY, START + SECOND_NS, START + SECOND_NS)
    assert [p.answered for p in probes] == [True, True, True, False]
    assert set(probes[-1].components) == {"v0", "r0", "l0--r0", "l0", "l0--s0", "s0"}
    assert set(probes[0].components) == {"v0"}
    assert not any(p.target for p in probes)


def test_a_hop_after_which_nothing_answered_may_be_silenced_by_what_lies_behind_it() -> None:
    """A switch whose next port is down passes nothing on; one after which others answer does."""
    book = PathBook(small_fabric())
    book.add_trace(trace(FULL, at=START))
    book.add_trace(trace("v0 - l0 s0 -", at=START + 5 * SECOND_NS, complete=False))
    probes = book.hop_probes(KEY, START + SECOND_NS, START + SECOND_NS)
    assert [p.beyond for p in probes] == [(), (), (), (), ("l1--r1", "r1")]
    book.add_trace(trace("v0 r0 l0 - l1 r1 v1 e1", at=START + 6 * SECOND_NS))
    assert not any(p.beyond for p in book.hop_probes(KEY, START, START + SECOND_NS, 1))


def test_of_many_traces_the_latest_may_be_asked_for() -> None:
    """In a storm one trace of each 5-tuple is looked at: that which was made last."""
    book = PathBook(small_fabric())
    book.add_trace(trace(FULL, at=START))
    for n in (7, 5, 6):
        book.add_trace(trace("v0 r0 l0 -", at=START + n * SECOND_NS, complete=False))
    every, last = (book.hop_probes(KEY, START + SECOND_NS, START + SECOND_NS, n) for n in (6, 1))
    assert [p.traced_ns for p in every] == [
        START + n * SECOND_NS for n in (5, 6, 7) for _ in range(4)
    ]
    assert last == every[-4:]


def test_a_hop_that_never_answers_says_nothing() -> None:
    """Silence is evidence only of a node that answered before."""
    book = PathBook(small_fabric())
    book.add_trace(trace("- r0 l0 - l1 r1 - e1", at=START))
    book.add_trace(trace("- r0 -", at=START + 5 * SECOND_NS, complete=False))
    probes = book.hop_probes(KEY, START + SECOND_NS, START + SECOND_NS)
    assert [(p.components[-1], p.answered) for p in probes] == [("r0", True), ("l0", False)]


def test_lateness_is_measured_against_the_best_before() -> None:
    """A hop's delay is its round trip less the least one from before the fault."""
    book = PathBook(small_fabric())
    book.add_trace(trace(FULL, at=START, rtts={4: 9000}))
    book.add_trace(trace(FULL, at=START + SECOND_NS, rtts={4: 4000}))
    book.add_trace(trace(FULL, at=START + 9 * SECOND_NS, rtts={4: 5_004_000, 8: 9_000_000}))
    probes = book.hop_probes(KEY, START + 5 * SECOND_NS, START + 5 * SECOND_NS)
    assert [p.rise_ns for p in probes] == [0, 0, 0, 5_000_000, 0, 0, 0, 8_992_000]
    assert [p.target for p in probes] == [False] * 7 + [True]


def test_traces_made_while_it_is_slow_do_not_become_the_measure() -> None:
    """Six traces for slowness, two of them before the onset is known: the calm one holds."""
    book = PathBook(small_fabric())
    slow = {hop: 5_000_000 + 1000 * hop for hop in range(4, 9)}
    book.add_trace(trace(FULL, at=START))
    for n in range(1, 7):
        book.add_trace(
            trace(FULL, at=START + 10 * n * SECOND_NS, rtts=slow, cause=TraceCause.LATENCY)
        )
    probes = book.hop_probes(KEY, START + 25 * SECOND_NS, START + 25 * SECOND_NS)
    last = [p.rise_ns for p in probes if p.traced_ns == START + 60 * SECOND_NS]
    assert last == [0, 0, 0, *[5_000_000] * 5]


def test_a_hop_on_another_way_counts_for_that_way_only() -> None:
    """After a detour the old path's expectations are void."""
    book = PathBook(small_fabric(spines=2))
    book.add_trace(trace(FULL, at=START))
    book.add_trace(trace("v0 r0 l0 s1 -", at=START + 9 * SECOND_NS, complete=False))
    probes = book.hop_probes(KEY, START + SECOND_NS, START + SECOND_NS)
    assert len(probes) == 4
    assert "s0" not in probes[-1].components
    assert "s1" in probes[-1].components


def test_the_book_is_bounded() -> None:
    """Beyond the bound new 5-tuples are refused; old evidence is forgotten."""
    book = PathBook(small_fabric(), max_flows=3)
    for flow in range(5):
        book.add_trace(trace(FULL, flow=flow, at=START + flow * SECOND_NS))
    assert len(book) == 3
    assert book.refused == 2
    assert book.traced_since(START) == [("e0", "e1", flow) for flow in (0, 1, 2)]
    assert book.traced_since(START, 1, among=lambda key: key[2] < 2) == [("e0", "e1", 1)]
    book.add_trace(trace(FULL, flow=2, at=START + 2 * EVIDENCE_NS))
    assert book.traced_since(0) == [("e0", "e1", 2)]


def test_traces_from_nowhere_have_a_bound_of_their_own() -> None:
    """They are refused long before the others, and forgotten like all that is not traced again."""
    book = PathBook(small_fabric())
    for flow in range(MAX_STRANGERS + 5):
        book.add_trace(trace(FULL, flow=flow), START, registered=False)
    assert (len(book), book.refused) == (MAX_STRANGERS, 5)
    book.add_trace(trace(FULL, flow=MAX_STRANGERS), START + SECOND_NS)
    book.add_trace(trace(FULL, flow=0), START + SECOND_NS, registered=False)
    book.forget_untraced(START + 1)
    assert len(book) == 2
    assert book.traced_since(0) == [("e0", "e1", 0), ("e0", "e1", MAX_STRANGERS)]


def test_a_dual_homed_rnic_is_not_guessed() -> None:
    """With two leaves at an RNIC the topology alone does not say which one."""
    topology = small_fabric()
    topology.set_component(component("l2", ComponentKind.SWITCH))
    topology.set_component(link("r0", "l2"))
    path = derived(topology, "e0", "e1")
    assert not path.whole
    assert "l0" not in path.components


def test_the_path_of_what_is_still_probed_is_kept() -> None:
    """Agents may trace again only what loses probes: the good ones must not be forgotten first."""
    book = PathBook(small_fabric())
    for flow in range(3):
        book.add_trace(trace(FULL, flow=flow), START)
    book.add_trace(trace(FULL, flow=2), START + 9 * SECOND_NS)
    probed = {("e0", "e1", 0)}
    book.forget_untraced(START + 5 * SECOND_NS, START + 20 * SECOND_NS, probed)
    assert [flow for flow in range(3) if book.is_traced(("e0", "e1", flow))] == [0, 2]
    book.forget_untraced(START + 15 * SECOND_NS, START + 30 * SECOND_NS)
    assert [flow for flow in range(3) if book.is_traced(("e0", "e1", flow))] == [0]
    book.forget_untraced(START + 25 * SECOND_NS, START + 40 * SECOND_NS)
    assert len(book) == 0
