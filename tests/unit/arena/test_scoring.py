"""Scores against a twin that tries every matching, and by hand."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.faults.truth import TrueFault, Verdict
from arena.scoring import (
    FIRST,
    GRACE_NS,
    MATCHED,
    MONTH_NS,
    NAMED,
    SAME_LAYER,
    Case,
    answers,
    delays_ns,
    match,
    place_of,
    scores,
)
from schemas.enums import Layer
from schemas.units import SECOND_NS


def fault(
    name: str = "f",
    *components: str,
    begin: int = 10,
    end: int | None = 60,
    hard: bool = True,
    kind: str = "connectivity",
    layer: Layer = Layer.UNDERLAY,
) -> TrueFault:
    """Return a fault of the link `a`, in seconds."""
    return TrueFault(
        fault_id=name, kind=kind, layer=layer, components=frozenset(components or ("a",)),
        begin_ns=begin * SECOND_NS, end_ns=None if end is None else end * SECOND_NS, hard=hard,
    )  # fmt: skip


def verdict(
    *candidates: str,
    at: int = 12,
    kind: str = "connectivity",
    layer: Layer = Layer.UNDERLAY,
    decided: bool = True,
    pages: bool = True,
) -> Verdict:
    """Return a verdict, in seconds."""
    return Verdict(
        fault_id=f"v{at}", kind=kind, layer=layer, candidates=candidates or ("a",),
        opened_ns=at * SECOND_NS, decided=decided, pages=pages,
    )  # fmt: skip


def case(faults: list[TrueFault], verdicts: list[Verdict], hours: int = 1) -> Case:
    """Return a case."""
    return Case(
        name="c", faults=tuple(faults), verdicts=tuple(verdicts),
        duration_ns=hours * 3600 * SECOND_NS, probes=7200 * hours,
    )  # fmt: skip


def worth(f: TrueFault, v: Verdict) -> int:
    """Return what the module says a pair is worth, spelt out."""
    if not answers(f, v):
        return 0
    place = place_of(f, v)
    total = MATCHED + (NAMED if place is not None else 0) + (FIRST if place == 0 else 0)
    return total + (SAME_LAYER if f.layer is v.layer else 0)


def best_by_trying(faults: list[TrueFault], verdicts: list[Verdict]) -> int:
    """Return the worth of the best matching, by trying all."""
    slots: list[Verdict | None] = [*verdicts, *[None] * len(faults)]
    return max(
        sum(worth(f, v) for f, v in zip(faults, chosen, strict=True) if v is not None)
        for chosen in permutations(slots, len(faults))
    )


names = st.sampled_from(["a", "b", "c"])
layers = st.sampled_from([Layer.UNDERLAY, Layer.OVERLAY])
some_faults = st.lists(
    st.builds(lambda c, b, n, y: fault("f", c, begin=b, end=b + n, layer=y),
              names, st.integers(0, 200), st.integers(0, 100), layers),
    max_size=3,
)  # fmt: skip
some_verdicts = st.lists(
    st.builds(lambda c, at, y: verdict(*c, at=at, layer=y),
              st.lists(names, min_size=1, max_size=3, unique=True), st.integers(0, 400), layers),
    max_size=3,
)  # fmt: skip


@settings(max_examples=200)
@given(some_faults, some_verdicts)
def test_no_matching_is_better(faults: list[TrueFault], verdicts: list[Verdict]) -> None:
    """The assignment's worth is the greatest of all; everything is in one place."""
    found = match(faults, verdicts)
    assert sum(worth(f, v) for f, v in found.pairs) == best_by_trying(faults, verdicts)
    assert len(found.pairs) + len(found.missed) == len(faults)
    assert len(found.pairs) + len(found.false) == len(verdicts)
    assert all(answers(f, v) for f, v in found.pairs)


@given(some_faults, some_verdicts)
def test_ratios_are_ratios(faults: list[TrueFault], verdicts: list[Verdict]) -> None:
    """Between 0 and 1, inside their intervals; None exactly where nothing is divided by."""
    for name, score in scores([case(faults, verdicts)] * 3).items():
        assert (score.value is None) == (score.denominator == 0)
        if score.value is None or name in ("false_pages", "probes"):
            continue
        assert 0 <= score.value <= 1
        assert score.low is not None
        assert score.high is not None
        assert score.low - 1e-9 <= score.value <= score.high + 1e-9


def test_two_faults_of_one_component_are_one_sick_component() -> None:
    """One name answers both; with another component sick as well, half was named."""
    found = scores([case([fault("f1"), fault("f2")], [verdict("a")])])
    assert found["set_precision"].value == found["set_recall"].value == found["set_f1"].value == 1
    found = scores([case([fault("f1"), fault("f2", "c")], [verdict("a")])])
    assert found["set_precision"].value == 1
    assert found["set_recall"].value == 0.5


def test_silence_over_a_healthy_cluster_has_no_precision_and_no_false_page() -> None:
    """Nothing to find, nothing said: both ratios of detection are undefined."""
    found = scores([case([], [])])
    assert found["precision"].value is None
    assert found["recall"].value is None
    assert found["top1"].value is None
    assert found["false_pages"].value == 0


def test_a_verdict_before_the_fault_or_long_after_it_does_not_answer() -> None:
    """Begin and end count, the end with the grace of a closing window."""
    grace = GRACE_NS // SECOND_NS
    assert not answers(fault(begin=10, end=60), verdict(at=9))
    assert answers(fault(begin=10, end=60), verdict(at=10))
    assert answers(fault(begin=10, end=60), verdict(at=60 + grace))
    assert not answers(fault(begin=10, end=60), verdict(at=61 + grace))
    assert answers(fault(begin=10, end=None), verdict(at=100_000))


def test_a_second_verdict_of_one_fault_is_false() -> None:
    """One of them is right, and it is the one that names the component."""
    found = match([fault()], [verdict("b", at=11), verdict("a", at=14)])
    assert [v.candidates for _, v in found.pairs] == [("a",)]
    assert [v.candidates for v in found.false] == [("b",)]
    assert scores([case([fault()], [verdict("b", at=11), verdict("a")])])["precision"].value == 0.5


def test_two_at_once_are_told_apart_by_what_the_verdicts_name() -> None:
    """Both were answered in time by either; names decide, not the order."""
    two = [fault("f", "a"), fault("g", "b", layer=Layer.OVERLAY)]
    found = match(two, [verdict("b", at=20, layer=Layer.OVERLAY), verdict("a", at=21)])
    assert {(f.fault_id, v.candidates[0]) for f, v in found.pairs} == {("f", "a"), ("g", "b")}


def test_localization_by_hand() -> None:
    """Right first, right third, right fourth, wrong: top-1 1/4, top-3 2/4."""
    cases = [
        case([fault()], [verdict("a")]),
        case([fault()], [verdict("x", "y", "a", decided=False)]),
        case([fault()], [verdict("x", "y", "z", "a", decided=False)]),
        case([fault()], [verdict("x", kind="packet_loss", layer=Layer.OVERLAY)]),
    ]
    found = scores(cases)
    assert found["top1"].value == 0.25
    assert found["top3"].value == 0.5
    assert found["layer"].value == 0.75
    assert found["kind"].value == 0.75
    # Named: a | x y a | x y z a | x; right in three of four cases.
    assert found["set_precision"].value == pytest.approx(3 / 9)
    assert found["set_recall"].value == pytest.approx(3 / 4)
    assert found["set_f1"].value == pytest.approx(2 * 3 / (9 + 4))


def test_answers_that_cannot_be_told_apart_count_once() -> None:
    """Both ends of a cable were named, and either is right: one hit, nothing too much."""
    both = case([fault("f", "cable", "port")], [verdict("port", "cable", decided=False)])
    found = scores([both])
    assert found["set_precision"].value == found["set_recall"].value == 1


def test_gray_and_hard_faults_are_counted_apart() -> None:
    """The gray one is missed."""
    found = scores([case([fault(), fault("g", "b", begin=500, end=600, hard=False)], [verdict()])])
    assert (found["recall"].value, found["recall_hard"].value) == (0.5, 1)
    assert found["recall_gray"].value == 0


def test_false_pages_are_per_month_and_agents_do_not_page() -> None:
    """Two false verdicts in a tenth of a month, one of them about an agent."""
    tenth = Case(
        name="c", faults=(), probes=0, duration_ns=MONTH_NS // 10,
        verdicts=(verdict("a"), verdict("agent", layer=Layer.HOST, pages=False, at=20)),
    )  # fmt: skip
    assert scores([tenth])["false_pages"].value == pytest.approx(10)


def test_the_interval_is_that_of_drawing_scenarios_again() -> None:
    """Of 100 scenarios 80 are found: the binomial's 95 %, give or take the drawing."""
    cases = [case([fault()], [verdict()] if n % 5 else []) for n in range(100)]
    recall = scores(cases)["recall"]
    assert recall.value == 0.8
    assert recall.low == pytest.approx(0.72, abs=0.02)
    assert recall.high == pytest.approx(0.88, abs=0.02)
    assert scores(cases)["recall"] == recall


def test_delays_are_those_of_what_was_found() -> None:
    """Two seconds after a hard fault, 40 after a gray one."""
    cases = [
        case([fault()], [verdict(at=12)]),
        case([fault(hard=False)], [verdict(at=50)]),
        case([fault()], []),
    ]
    assert delays_ns(cases) == [2 * SECOND_NS, 40 * SECOND_NS]
    assert delays_ns(cases, hard=True) == [2 * SECOND_NS]
    assert delays_ns(cases, hard=False) == [40 * SECOND_NS]
