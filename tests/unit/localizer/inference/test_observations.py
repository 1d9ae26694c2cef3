"""What bad 5-tuples possibly cross, beside one 5-tuple after the other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.anomalies import NO_LATE, Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.inference.causes import Cause, Columns, Reason
from localizer.inference.detection_lag import Shown
from localizer.inference.good_flows import GoodFlows
from localizer.inference.observations import (
    LATE_CHANCE,
    certain_components,
    is_apart,
    possible_groups,
)
from localizer.network.flow_index import FlowIndex
from localizer.network.replies import ReplyWays
from schemas.enums import AnomalyKind, ComponentKind
from tests.unit.localizer.made import START, component, link, small_fabric

SPINES = 2
LEAVES = 3


def way(src: int, dst: int, spine: int) -> tuple[str, ...]:
    """Return what a 5-tuple between the RNICs of two leaves crosses."""
    begin, end = f"l{src}", f"l{dst}"
    over = f"s{spine}"
    return (
        f"r{src}", f"{begin}--r{src}", begin, f"{begin}--{over}", over, f"{end}--{over}", end,
        f"{end}--r{dst}", f"r{dst}",
    )  # fmt: skip


def bad(
    key: tuple[str, str, int],
    crossed: tuple[str, ...],
    passed: frozenset[str],
    doubted: tuple[tuple[str, float], ...] = (),
    *,
    traced: bool = False,
) -> BadFlow:
    """Return a 5-tuple that is cut off."""
    symptom = Symptom(
        kind=AnomalyKind.CONNECTIVITY, agent_id="a", onset_ns=START, onset_at=START, seen_ns=START,
        last_ns=START, sent=3, lost=3, rtt_ns=None, baseline_ns=None, host_delay_ns=None,
        prober_late=NO_LATE, responder_late=NO_LATE,
    )  # fmt: skip
    return BadFlow(
        key=key, symptoms=(symptom,), components=crossed, prober="a", responder="b", open=True,
        passed_before=passed, doubted=doubted, traced=traced,
    )  # fmt: skip


FLOWS = st.lists(
    st.tuples(
        st.integers(0, LEAVES - 1), st.integers(0, LEAVES - 1), st.integers(0, SPINES - 1),
        st.sampled_from(["good", "bad", "unknown", "passed", "doubted", "traced"]),
    ).filter(lambda drawn: drawn[0] != drawn[1]),
    min_size=1, max_size=14,
)  # fmt: skip


@given(flows=FLOWS, candidates=st.sets(st.integers(0, 7)), bonded=st.sets(st.integers(0, 2)))
def test_groups_say_what_each_would_alone(
    flows: list[tuple[int, int, int, str]], candidates: set[int], bonded: set[int]
) -> None:
    """The same columns with the same chances, whether the index knows the path or not."""
    fabric = small_fabric(spines=SPINES)
    for made in (
        component("l2", ComponentKind.SWITCH), link("l2", "s0"), link("l2", "s1"),
        component("r2", ComponentKind.RNIC), link("l2", "r2"),
        component("e2", ComponentKind.ENDPOINT, parent="r2"),
    ):  # fmt: skip
        fabric.set_component(made)
    for number in bonded:
        fabric.set_component(link(f"l{(number + 1) % LEAVES}", f"r{number}"))
    index, cut = FlowIndex(), []
    for number, (src, dst, spine, what) in enumerate(flows):
        key, crossed = (f"e{src}", f"e{dst}", number), way(src, dst, spine)
        if what != "unknown":
            index.set_flow(key, crossed, "a", "b")
        if what != "good":
            passed = frozenset({f"s{spine}"}) if what == "passed" else frozenset[str]()
            doubted = ((crossed[3], 0.25),) if what in {"doubted", "traced"} else ()
            cut.append(bad(key, crossed, passed, doubted, traced=what == "traced"))
    names = sorted({c for flow in cut for c in flow.components})
    causes = [Cause.of(Reason.COMPONENT, c) for n, c in enumerate(names) if n not in candidates]
    causes.append(Cause.of(Reason.PROBER, "a"))
    column, replies = Columns.of(tuple(causes)), ReplyWays(fabric, index)
    good = GoodFlows.of(index, [flow.key for flow in cut], [])
    (rows,) = good.columns(column, len(causes), Shown(1.0))
    places = index.rows_of([(flow.key, flow.components) for flow in cut])
    places[[row for row, flow in enumerate(cut) if is_apart(flow)]] = -1
    group, possible = possible_groups(replies, cut, places, column, rows)
    for flow, number in zip(cut, group.tolist(), strict=True):
        shares = {**replies.shares(*flow.key[:2]), **dict.fromkeys(flow.passed_before, LATE_CHANCE)}
        for cable, chance in flow.doubted:
            # Its reply may be lost there; hardly where traces break off before it as well.
            back = shares.get(cable, 0.0)
            shares[cable] = max(chance, back * back if flow.traced else back)
        crossed_now = column.certain_columns(certain_components(flow), "a", "b")
        part = slice(*possible.starts[number : number + 2].tolist())
        found = dict(
            zip(possible.columns[part].tolist(), possible.chance[part].tolist(), strict=True)
        )
        assert found == dict(column.possible_columns(shares, crossed_now))
    assert np.all(np.diff(possible.starts) >= 0)
    assert possible.starts[:2].tolist() == [0, 0]
