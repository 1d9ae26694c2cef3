"""From when on an agent must have lived for the network to be blamed; what queues look like."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from localizer.config import CoreConfig
from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.facts.inputs import Sources
from localizer.inference.causes import Cause, Reason
from localizer.inference.evidence import Evidence
from localizer.verdict.cases import Case
from localizer.verdict.catalogue import KINDS
from localizer.verdict.judge import (
    ANSWERED_NS,
    BURST_WINDOWS_NS,
    Judge,
    _is_one_delay,
    _is_sure,
    _may_be_echo,
    agents_must_live_since,
    by_brief_queues,
    by_queues,
)
from localizer.verdict.kind_model import KindModel, LikeliestKind
from schemas.enums import AnomalyFamily, AnomalyKind
from schemas.units import SECOND_NS
from streams.config import REFRESH_STEP_NS, DetectionConfig
from tests.unit.localizer.made import START, small_fabric


def bad(number: int, kind: AnomalyKind, at_s: int) -> BadFlow:
    """Return a 5-tuple that is cut off, or loses packets, since a time."""
    onset_ns = START + at_s * SECOND_NS
    symptom = Symptom(
        kind=kind, agent_id="a", onset_ns=onset_ns, onset_at=onset_ns // 1000,
        seen_ns=onset_ns + SECOND_NS, last_ns=onset_ns + SECOND_NS, sent=9, lost=3, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e0", "e1", number), symptoms=(symptom,), components=("vsw",), prober="a",
        responder="b", open=True,
    )  # fmt: skip


def test_an_agent_that_restarts_did_not_live_because_some_packets_were_lost_before() -> None:
    """Two 5-tuples to a starved host lose packets for a minute; then the agent is restarted."""
    lossy = [bad(n, AnomalyKind.LOSS, 0) for n in range(2)]
    cut = [bad(10 + n, AnomalyKind.CONNECTIVITY, 60) for n in range(8)]
    both = cast(Case, SimpleNamespace(open=(*lossy, *cut)))
    assert agents_must_live_since(both) == cut
    only = cast(Case, SimpleNamespace(open=(*lossy, cut[0])))
    assert agents_must_live_since(only) == (*lossy, cut[0])


@pytest.mark.parametrize(("probers", "waits"), [("aaa", True), ("aab", False)])
def test_an_rnic_is_not_blamed_for_an_agent_that_may_answer_no_more(
    probers: str, *, waits: bool
) -> None:
    """The probes to one RNIC come first: a round later those to the agent's others are lost, too.

    Probes of the agent's own that are lost say at once that it is not only its answers.
    """
    cut = tuple(
        replace(
            bad(n, AnomalyKind.CONNECTIVITY, 0),
            prober=prober,
            responder="b" if prober == "a" else "a",
        )
        for n, prober in enumerate(probers)
    )
    # Both directions between two agents have both in common; a third tells which one it is.
    cut = (*cut, replace(cut[0], prober="c"))
    case = cast(
        Case,
        SimpleNamespace(
            open=cut, count=len(cut), evidence=SimpleNamespace(well=lambda _: len(cut) * 9)
        ),
    )
    lives = SimpleNamespace(alive_after=lambda *_: True)
    roster = SimpleNamespace(host_of=lambda _: None)
    sources = SimpleNamespace(
        liveness=lives, topology=None, states=None, findings=None, roster=roster
    )
    judge = Judge(CoreConfig(cluster="c"), cast(Sources, sources))
    now_ns = cut[0].seen_ns + SECOND_NS // 2
    assert judge._may_be_stall(case, now_ns) is waits
    assert judge._may_be_stall(case, now_ns + 2 * SECOND_NS) is waits
    assert not judge._may_be_stall(case, now_ns + ANSWERED_NS)


@pytest.mark.parametrize(
    ("targets", "waits"),
    [
        (("h1/c0", "h1/c1", "h1/c1", "h1/c0"), True),
        (("h1/c0", "h1/c1", "h1/c1", "h2/c0"), False),
        (("h1/c0", "h1/c1", "h1/c1", "?"), False),
    ],
)
@pytest.mark.parametrize(("lossy", "holds"), [(0, True), (3, True), (5, False)])
def test_a_host_that_only_answers_nothing_may_have_paused(
    targets: tuple[str, ...], *, waits: bool, lossy: int, holds: bool
) -> None:
    """Both agents of a starved host pause at once; few probes lose all they sent in so short."""
    cut = tuple(
        replace(
            bad(n, AnomalyKind.CONNECTIVITY, 0),
            key=(f"e{n}", target, 0),
            prober=f"a{n}",
            responder=f"agent of {target}",
        )
        for n, target in enumerate(targets)
    )
    # Some of them, and others, lost single probes at a leak before; of more it is a case itself.
    leaks = [bad(9, AnomalyKind.STRAY_LOSS, -300)] * lossy
    before = tuple(flow.symptoms[0] for flow in leaks[:1])
    cut = (replace(cut[0], symptoms=(*before, *cut[0].symptoms)), *cut[1:])
    flows = (*leaks, *cut)
    case = cast(
        Case,
        SimpleNamespace(open=flows, count=len(flows), evidence=SimpleNamespace(well=lambda _: 57)),
    )
    hosts = {target: target.split("/", maxsplit=1)[0] for target in targets if target != "?"}
    sources = SimpleNamespace(
        liveness=SimpleNamespace(alive_after=lambda *_: True), topology=None, states=None,
        findings=None, roster=SimpleNamespace(host_of=hosts.get),
    )  # fmt: skip
    judge = Judge(CoreConfig(cluster="c"), cast(Sources, sources))
    assert judge._may_be_stall(case, cut[1].seen_ns + 2 * SECOND_NS) is (waits and holds)
    assert not judge._may_be_stall(case, cut[1].seen_ns + ANSWERED_NS)


@pytest.mark.parametrize(
    ("kinds", "doubt", "sure"),
    [
        ("ll", 0.09, False),
        ("ss", 0.09, True),
        ("sl", 0.09, False),
        ("ll", 0.04, True),
    ],
)
def test_chance_is_ruled_out_for_a_leak_by_its_pooled_test(
    kinds: str, doubt: float, *, sure: bool
) -> None:
    """Two 5-tuples that lost single probes say little by themselves: the leak was known before."""
    each = {"s": AnomalyKind.STRAY_LOSS, "l": AnomalyKind.LOSS}
    flows = tuple(bad(n, each[kind], 0) for n, kind in enumerate(kinds))
    assert _is_sure(cast(Case, SimpleNamespace(open=flows, doubt=doubt))) is sure


def late(answers_ns: np.ndarray) -> list[BadFlow]:
    """Return a late 5-tuple for each row of round trips above the usual ones, by their quartiles.

    Parameters
    ----------
    answers_ns : (n, answers) float64
    """
    middle, upper = (np.quantile(answers_ns, share, axis=1) for share in (0.5, 0.75))
    return [
        BadFlow(
            key=("e0", "e1", number),
            symptoms=(
                Symptom(
                    kind=AnomalyKind.LATENCY,
                    agent_id="a",
                    onset_ns=START,
                    onset_at=START // 1000,
                    seen_ns=START,
                    last_ns=START,
                    sent=30,
                    lost=0,
                    rtt_ns=10_000 + round(up),
                    baseline_ns=10_000,
                    host_delay_ns=None,
                    median_rise_ns=round(mid),
                ),
            ),
            components=("cable",),
            prober="a",
            responder="b",
            open=True,
        )
        for number, (mid, up) in enumerate(zip(middle.tolist(), upper.tolist(), strict=True))
    ]


@pytest.mark.parametrize("queues", [1, 2, 4, 6])
def test_windows_of_queues_are_told_together_though_some_look_like_a_shift(queues: int) -> None:
    """Of six in a row every fourth window has the shape of a shift by itself: a burst, no fault."""
    rng = np.random.default_rng(queues)
    waits_ns = rng.gamma(queues, 5_000.0, (200, 30))
    lower, upper = np.quantile(waits_ns, (0.25, 0.75), axis=1)
    alone = float((lower >= 0.6 * upper).mean())
    assert (alone > 0.2) is (queues == 6)
    told = sum(by_queues(late(waits_ns[begin : begin + 20])) for begin in range(0, 200, 20))
    assert told >= (8 if queues == 6 else 10)


@pytest.mark.parametrize("constant", [0.7, 0.85, 1.0])
def test_a_delay_that_is_mostly_constant_is_no_queue(constant: float) -> None:
    """Nor is one of which nothing but the weak rises is known."""
    rng = np.random.default_rng(5)
    delays_ns = 15_000 * (constant + (1 - constant) * rng.standard_exponential((20, 30)))
    assert not by_queues(late(delays_ns))
    assert not by_queues([bad(0, AnomalyKind.WEAK_LATENCY, 0)])


def late_answers(delays_ns: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> list[BadFlow]:
    """Return 5-tuples whose last answers are late by so much."""
    lower, middle = np.quantile(delays_ns, (0.25, 0.5), axis=1)
    return [
        replace(
            flow := bad(number, AnomalyKind.BRIEF_LATENCY, 0),
            symptoms=(
                replace(
                    flow.symptoms[0], rtt_ns=10_000 + round(low), baseline_ns=10_000,
                    median_rise_ns=round(mid),
                ),
            ),
        )
        for number, (low, mid) in enumerate(zip(lower.tolist(), middle.tolist(), strict=True))
    ]  # fmt: skip


def test_last_answers_that_wait_in_queues_are_told_from_a_delay() -> None:
    """Eight answers of ten 5-tuples, again and again: a burst passes for a shift once in a while.

    That the shape is asked for a second time, of other answers, leaves it next to no chance.
    """
    rng = np.random.default_rng(6)
    passed = {
        queues: np.mean(
            [
                not by_brief_queues(late_answers(5_000 * rng.standard_gamma(queues, (10, 8))))
                for _ in range(200)
            ]
        )
        for queues in (1, 2, 4)
    }
    assert passed[1] < passed[2] < passed[4] < 0.5
    assert passed[2] ** 2 < 0.01
    constant = 5_000 * (0.85 + 0.15 * rng.standard_exponential((10, 8)))
    assert not by_brief_queues(late_answers(constant))
    assert not by_brief_queues([bad(0, AnomalyKind.BRIEF_LATENCY, 0)])


def test_three_windows_may_be_a_burst_and_four_are_none() -> None:
    """Until the third window's value is repeated at the latest; the fourth's cannot be sooner."""
    config = DetectionConfig()
    third_ns, fourth_ns = 3 * config.window_ns, 4 * config.window_ns
    latest_ns = config.lateness_ns + config.closing_spread_ns + REFRESH_STEP_NS
    assert third_ns + latest_ns <= BURST_WINDOWS_NS < fourth_ns + config.lateness_ns


def delayed(number: int, rise_us: int, *crossed: str) -> BadFlow:
    """Return a 5-tuple that is late by so much, and what it crosses."""
    symptom = Symptom(
        kind=AnomalyKind.LATENCY, agent_id="a", onset_ns=START, onset_at=START // 1000,
        seen_ns=START, last_ns=START, sent=30, lost=0, rtt_ns=10_000 + 1_000 * rise_us,
        baseline_ns=10_000, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e0", "e1", number), symptoms=(symptom,), components=crossed, prober="a",
        responder="b", open=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rise_us", "apart", "known", "echo"),
    [
        (17, 0, "cable", True),
        # It is late by another delay; three cannot be its replies; no fault is known; it is known.
        (60, 0, "cable", False),
        (17, 3, "cable", False),
        (17, 0, "", False),
        (17, 0, "leaf", False),
    ],
)
def test_a_switch_is_not_blamed_for_replies_that_a_slow_cable_delays(
    rise_us: int, apart: int, known: str, *, echo: bool
) -> None:
    """The cable delays what crosses it there and back; what is late crosses the leaf, too."""
    there = [delayed(number, 17, "leaf", "cable") for number in range(4)]
    back = [delayed(10 + number, rise_us, "leaf") for number in range(6)]
    echoing = frozenset(flow.key for flow in back[apart:])
    case = SimpleNamespace(
        cause=SimpleNamespace(name="leaf"),
        open=(*there[:2], *back),
        own=(*there[:2], *back[:apart]),
        good=6,
        evidence=SimpleNamespace(
            bad=(*there, *back), known=frozenset({known} - {""}), echoing=echoing,
            replies=SimpleNamespace(shares=lambda *_: {"cable": 0.5}),
        ),
    )  # fmt: skip
    assert _may_be_echo(cast(Case, case), CoreConfig(cluster="c").min_flows) is echo


@pytest.mark.parametrize(
    ("good", "share", "named", "echo"),
    [
        # As many as come back through it; many more; more, and a state; what is late without it.
        (10, 0.5, 0.0, True),
        (1, 0.25, 0.0, False),
        (4, 0.5, 4.5, True),
        (4, 0.25, 4.5, False),
        (30, 0.0, 0.0, False),
        (30, 0.9, 4.5, True),
    ],
)
def test_more_late_ones_than_come_back_through_a_slow_cable_are_another_fault(
    good: int, share: float, named: float, *, echo: bool
) -> None:
    """Ten are late by the delay of the cable, and may all be replies."""
    there = [delayed(number, 17, "leaf", "cable") for number in range(4)]
    back = [delayed(10 + number, 17, "rnic") for number in range(10)]
    case = SimpleNamespace(
        cause=SimpleNamespace(name="rnic"),
        open=tuple(back),
        own=(),
        good=good,
        evidence=SimpleNamespace(
            bad=(*there, *back), known=frozenset({"cable"}),
            replies=SimpleNamespace(shares=lambda *_: {"cable": share}),
        ),
    )  # fmt: skip
    assert _may_be_echo(cast(Case, case), CoreConfig(cluster="c").min_flows, named) is echo


@pytest.mark.parametrize(
    ("rises_ns", "one"),
    [
        ([], True),
        ([900, 1_400, 700], False),
        ([1_600, 3_000, 1_500], True),
        ([3_000, 1_400, 9_000, 30_000], False),
    ],
)
def test_rises_are_one_delay_if_they_are_alike_and_matter(
    rises_ns: list[int], *, one: bool
) -> None:
    """An endpoint's own packets wander by a microsecond."""
    assert _is_one_delay(rises_ns) is one


@pytest.mark.parametrize(
    ("kind", "fresh", "rises_us", "ready"),
    [
        ("pcie_error", True, (0, 0, 1, 5, 20, 40), True),
        # It was out of order before; nothing matters; a burst fills queues as well; no state.
        ("pcie_error", False, (0, 0, 1, 5, 20, 40), False),
        ("pcie_error", True, (0, 0, 1, 1, 1, 40), False),
        ("congestion", True, (0, 0, 1, 5, 20, 40), False),
        ("high_latency", False, (0, 0, 1, 5, 20, 40), False),
        ("pcie_error", False, (9, 9, 10, 10, 11, 12), True),
    ],
)
def test_a_state_that_names_it_says_that_unlike_rises_are_one_fault(
    kind: str, rises_us: tuple[int, ...], *, fresh: bool, ready: bool
) -> None:
    """An RNIC's PCIe link replays half of the packets: few rises of the last answers are alike."""
    flows = tuple(
        replace(delayed(n, rise, "r0"), key=(f"e{n % 3}", "e9", n))
        for n, rise in enumerate(rises_us)
    )
    cause = Cause.of(Reason.COMPONENT, "r0")
    evidence = SimpleNamespace(
        family=AnomalyFamily.LATENCY, known=frozenset(), echoing=frozenset(), bad=flows,
        causes=[cause], replies=SimpleNamespace(shares=lambda *_: {}),
        problem=SimpleNamespace(hops=SimpleNamespace(rows=np.empty(0), columns=np.empty(0))),
    )  # fmt: skip
    case = Case(
        evidence=cast(Evidence, evidence), cause=cause, shares=((cause, 1.0),), doubt=0.0,
        bad=flows, open=flows, good=2,
    )  # fmt: skip
    board = SimpleNamespace(open=lambda _: {})
    sources = SimpleNamespace(
        liveness=SimpleNamespace(alive_after=lambda *_: True), topology=small_fabric(),
        roster=SimpleNamespace(tasks_of=lambda _: ()), anomalies=board, weak_latencies=board,
        brief_latencies=board, states=None, findings=None,
    )  # fmt: skip
    judge = Judge(CoreConfig(cluster="c"), cast(Sources, sources))
    found = LikeliestKind(KINDS[kind], "r0", (), fresh)
    judge._kinds = cast(
        KindModel,
        SimpleNamespace(find=lambda *_: found, in_maintenance=lambda _: False),
    )
    # Both directions between two agents have both in common.
    flows[0].prober, flows[0].responder = "b", "a"
    claim = judge.claim(case, START + 60 * SECOND_NS)
    assert claim is not None
    assert claim.ready is ready


@pytest.mark.parametrize(
    ("known_s", "told"),
    [
        # Lost for long and known as long; known late, as of an endpoint that registers now, for two
        # seconds and for five.
        (1, True),
        (38, False),
        (35, True),
    ],
)
def test_an_agent_is_not_blamed_for_what_became_known_late(known_s: int, *, told: bool) -> None:
    """At the end of a storm the latest records may be of 5-tuples that are well again."""
    now = START + 40 * SECOND_NS
    symptom = Symptom(
        kind=AnomalyKind.CONNECTIVITY, agent_id="b", onset_ns=START, onset_at=START // 1000,
        seen_ns=START + known_s * SECOND_NS, last_ns=now, sent=9, lost=9, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    flows = tuple(
        BadFlow(
            key=(f"e{n}", "e9", n), symptoms=(symptom,), components=("r0",), prober="b",
            responder="a", open=True,
        )
        for n in range(4)
    )  # fmt: skip
    cause = Cause.of(Reason.RESPONDER, "a")
    case = Case(
        evidence=cast(Evidence, SimpleNamespace(family=AnomalyFamily.LOSS)), cause=cause,
        shares=((cause, 1.0),), doubt=0.0, bad=flows, open=flows, good=2,
    )  # fmt: skip
    sources = SimpleNamespace(
        liveness=SimpleNamespace(
            returned_ns=lambda _: None, alive_after=lambda *_: True,
            lived_ns=lambda _, onset_ns: onset_ns + SECOND_NS,
        ),
        topology=small_fabric(), roster=SimpleNamespace(tasks_of=lambda _: ()), states=None,
        findings=None,
    )  # fmt: skip
    judge = Judge(CoreConfig(cluster="c"), cast(Sources, sources))
    assert (judge.claim(case, now) is not None) is told
