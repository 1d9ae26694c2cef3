"""The index of what is probed, kept up change by change, against one that is made at once."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localizer.facts.index_cache import IndexCache
from localizer.facts.roster import Roster
from localizer.network import flow_index
from localizer.network.flow_index import NOTHING, FlowIndex
from localizer.network.paths import PathBook
from schemas.ids import FlowId
from tests.unit.localizer.made import endpoint, pinglist, small_fabric, trace

ENDS = ("e0", "e1")
WAYS = ("l0 s0 l1 e1", "l0 s1 l1 e1")
keys = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 3))
names = st.sampled_from([f"c{n}" for n in range(9)])
changes = st.lists(
    st.tuples(
        keys,
        st.one_of(st.none(), st.lists(names, unique=True, max_size=6)),
        st.sampled_from(["p", "q"]),
        st.sampled_from([None, "p", "q"]),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(changes, st.sampled_from([0, 1_024]), st.integers(0, 8))
def test_rows_by_component_are_those_of_a_plain_dict(
    changes: list[tuple[FlowId, list[str] | None, str, str | None]], first: int, together: int
) -> None:
    """However 5-tuples come, one by one or many at once, change and go.

    With the postings made anew often, or never.
    """
    index, plain = FlowIndex(), dict[FlowId, set[tuple[str, str]]]()
    before, flow_index.FIRST = flow_index.FIRST, first  # type: ignore[misc]
    try:
        new = {c[0]: (c[0], c[1], c[2], c[3]) for c in changes[:together] if c[1] is not None}
        index.add_flows(list(new.values()))
        one_by_one = [*new.values(), *changes[together:]]
        for step, (key, components, prober, responder) in enumerate(one_by_one, 1):
            if components is None:
                index.drop_flow(key)
                plain.pop(key, None)
                continue
            index.set_flow(key, components, prober, responder)
            plain[key] = {("component", c) for c in components} | {("prober", prober)}
            plain[key] |= {("responder", responder)} if responder else set()
            if step < len(new):
                continue
            for sort, known in (
                ("component", index.components),
                ("prober", index.probers),
                ("responder", index.responders),
            ):
                for name, number in known.items():
                    expected = {k for k, crossed in plain.items() if (sort, name) in crossed}
                    assert {index.key(p) for p in index.rows_with(number).tolist()} == expected
                    assert index.crossing[number] == len(expected)
        assert len(index) == len(plain) == int(index.live.sum())
        assert not index.rows[~index.live].any()
    finally:
        flow_index.FIRST = before  # type: ignore[misc]


def test_nothing_is_crossed_by_nobody() -> None:
    """The number that rows are padded with finds no row."""
    index = FlowIndex()
    index.set_flow(("a", "b", 0), ["c"], "p", None)
    assert not len(index.rows_with(NOTHING))
    assert index.count("elsewhere") == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.sampled_from(["a0", "a1"]), st.integers(0, 3)),
        st.tuples(st.just("endpoint"), st.sampled_from(ENDS), st.sampled_from([None, "a0", "a1"])),
        st.tuples(st.just("trace"), st.integers(0, 2), st.sampled_from(WAYS)),
        st.tuples(st.just("look"), st.none(), st.none()),
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=100)
@given(steps)
def test_what_is_kept_up_is_what_is_probed_and_traced(
    steps: list[tuple[str, str | int | None, str | int | None]],
) -> None:
    """Lists, registrations and traces in any order, looked at in between or not."""
    topology = small_fabric(spines=2)
    roster, paths = Roster(), PathBook(topology)
    cache = IndexCache(roster, paths, topology)
    for number, (what, who, how) in enumerate(steps, 1):
        if what == "list":
            made = pinglist(str(who), [ENDS], flows=int(how or 0), version=number)
            roster.set_pinglist(str(who), made if how else None)
        elif what == "endpoint":
            roster.set_endpoint(str(who), endpoint(str(who), str(how)) if how else None)
        elif what == "trace":
            paths.add_trace(trace(str(how), at=number * 10**9, flow=int(who or 0)))
        else:
            cache.refresh()
    index = cache.refresh()
    expected: dict[FlowId, tuple[str, set[str], str | None]] = {}
    for agent, key in roster.probed():
        if paths.is_traced(key):
            crossed = set(paths.path(key).components)
            expected.setdefault(key, (agent, crossed, roster.agent_of(key[1])))
    found = {}
    for key, place in index.by_key.items():
        row = index.rows[place]
        crossed = {index.name(n) for n in row[flow_index.CROSSED :].tolist() if n}
        answers = index.name(int(row[flow_index.RESPONDER])) or None
        found[key] = (index.prober(place), crossed, answers)
    assert found == expected
    assert np.array_equal(
        index.crossing, np.bincount(index.rows[index.live].ravel(), minlength=len(index.crossing))
        * (np.arange(len(index.crossing)) != NOTHING)
    )  # fmt: skip
