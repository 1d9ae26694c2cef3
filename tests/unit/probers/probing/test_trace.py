"""Traces: what is sent, what an answer means, how often."""

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probers.probing.plan import FlowTarget
from probers.probing.trace import (
    AGAIN_NS,
    MAX_TTL,
    WAVE,
    FinishedTrace,
    TraceOrder,
    Tracer,
    TraceSettings,
    in_turn,
)
from probers.transports.base import Completion, Reason
from probers.transports.rtt import Timestamps
from schemas.enums import ProbeStatus, TraceCause
from schemas.units import MS_NS, SECOND_NS
from tests.unit.probers.makers import flow

A = flow("w1/r0")
TIMES = Timestamps(posted_ns=0, sent_ns=0, received_ns=30_000, handled_ns=40_000, hold_ns=10_000)


class Network:
    """Answers traces: nodes by ttl (None: silent), then the target."""

    def __init__(self, tracer: Tracer, nodes: list[str | None], target: str | None) -> None:
        self.tracer = tracer
        self.nodes = nodes
        self.target = target
        self.orders: list[TraceOrder] = []
        self._tokens = count()

    def answer(self, token: int, ttl: int) -> Completion:
        """Return what a probe with that ttl brings."""
        if ttl <= len(self.nodes):
            node = self.nodes[ttl - 1]
            if node is None:
                return Completion(token=token, status=ProbeStatus.TIMEOUT)
            return Completion(
                token=token,
                status=ProbeStatus.UNREACHABLE,
                reason=Reason.TTL_EXCEEDED,
                times=TIMES,
                reporter=node,
            )
        if self.target is None:
            return Completion(token=token, status=ProbeStatus.TIMEOUT)
        return Completion(token=token, status=ProbeStatus.OK, times=TIMES, reporter=self.target)

    def run(self, now_ns: int) -> list[FinishedTrace]:
        """Send all that is due and answer it, until nothing is."""
        while orders := self.tracer.due(now_ns):
            self.orders.extend(orders)
            tokens = [(next(self._tokens), order) for order in orders]
            for token, order in tokens:
                self.tracer.sent(token, order)
            # Farthest first: the order of answers must not matter.
            for token, order in reversed(tokens):
                self.tracer.completed(self.answer(token, order.ttl), now_ns)
        return self.tracer.finished()


def a_tracer(**settings: int) -> Tracer:
    """Return a tracer."""
    return Tracer(TraceSettings(timeout_ns=250 * MS_NS, **settings))


def test_a_new_flow_is_traced_at_once_hop_by_hop_to_its_target() -> None:
    """Hops in order with address and round trip; complete, because the target answered."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    (trace,) = Network(tracer, ["n1", "n2"], "t").run(0)
    assert (trace.target, trace.cause, trace.complete) == (A, TraceCause.DISCOVERY, True)
    assert [(h.ttl, h.address, h.rtt_ns) for h in trace.hops] == [
        (1, "n1", 20_000),
        (2, "n2", 20_000),
        (3, "t", 20_000),
    ]
    assert trace.incomplete_reason is None


def test_all_ttls_of_a_wave_go_out_together() -> None:
    """The first call orders a whole wave on the flow's own 5-tuple."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    orders = tracer.due(0)
    assert [o.ttl for o in orders] == list(range(1, WAVE + 1))
    assert {o.target for o in orders} == {A}


def test_a_silent_hop_is_a_hop_without_an_address() -> None:
    """A router that does not answer stays in its place, as None."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    (trace,) = Network(tracer, ["n1", None, "n3"], "t").run(0)
    assert [h.address for h in trace.hops] == ["n1", None, "n3", "t"]
    assert trace.complete


def test_a_long_path_takes_more_waves() -> None:
    """Beyond the first wave the search goes on while anybody answers."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    (trace,) = Network(tracer, [f"n{i}" for i in range(11)], "t").run(0)
    assert trace.complete
    assert len(trace.hops) == 12


def test_a_cut_path_ends_after_its_last_answer() -> None:
    """The hops up to the cut, one silent hop after them, and the reason in words."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    (trace,) = Network(tracer, ["n1", "n2"] + [None] * 60, None).run(0)
    assert not trace.complete
    assert [h.address for h in trace.hops] == ["n1", "n2", None]
    assert trace.incomplete_reason == "no answer after hop 2 (n2)"


def test_a_path_of_answers_without_end_ends_at_the_largest_ttl() -> None:
    """A routing loop: every ttl answered, the target never."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    (trace,) = Network(tracer, ["n1", "n2"] * 40, None).run(0)
    assert not trace.complete
    assert len(trace.hops) == MAX_TTL


def test_a_loss_is_traced_at_once_in_one_wave_of_the_known_length() -> None:
    """So it lasts one timeout, not several."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    network = Network(tracer, ["n1", "n2"], "t")
    network.run(0)
    network.nodes, network.target, network.orders = ["n1", None], None, []
    tracer.lost(A, 60 * SECOND_NS)
    assert tracer.due_ns(60 * SECOND_NS) == 60 * SECOND_NS
    (trace,) = network.run(60 * SECOND_NS)
    assert (trace.cause, trace.complete) == (TraceCause.LOSS, False)
    assert [o.ttl for o in network.orders] == [1, 2, 3]
    assert [h.address for h in trace.hops] == ["n1", None]


def test_losses_of_one_flow_are_traced_only_so_often() -> None:
    """Ten losses in a second are one trace; one more after the gap is another."""
    tracer = a_tracer(cause_gap_ns=10 * SECOND_NS)
    tracer.follow((A,), 0)
    network = Network(tracer, ["n1"], "t")
    network.run(0)
    for n in range(10):
        tracer.lost(A, 20 * SECOND_NS + n * 100 * MS_NS)
    assert len(network.run(21 * SECOND_NS)) == 1
    assert tracer.suppressed == 9
    tracer.lost(A, 31 * SECOND_NS)
    assert len(network.run(31 * SECOND_NS)) == 1


def test_a_flow_that_became_slower_is_traced_while_it_is() -> None:
    """At the second slow answer, again after the gap, not once it is fast again."""
    tracer = a_tracer(cause_gap_ns=10 * SECOND_NS)
    tracer.follow((A,), 0)
    network = Network(tracer, ["n1"], "t")
    network.run(0)
    traced = []
    for second in range(90):
        rtt_ns = 11 * MS_NS if 40 <= second < 65 else MS_NS
        tracer.answered(A, rtt_ns, second * SECOND_NS)
        traced += [(second, t.cause) for t in network.run(second * SECOND_NS)]
    assert traced == [(41, TraceCause.LATENCY), (51, TraceCause.LATENCY), (61, TraceCause.LATENCY)]


def test_slowness_of_everything_does_not_hold_up_traces_for_loss() -> None:
    """A hundred flows slow at once: a few are traced, a loss at once all the same."""
    flows = tuple(flow(f"w{n}/r0") for n in range(100))
    tracer = a_tracer(rate_hz=20)
    tracer.follow(flows, 0)
    network = Network(tracer, ["n1"], "t")
    for tick in range(100):
        network.run(tick * 100 * MS_NS)
    for second in (20, 21, 22):
        for target in flows:
            tracer.answered(target, MS_NS if second == 20 else 50 * MS_NS, second * SECOND_NS)
    tracer.lost(A, 22 * SECOND_NS)
    causes = [t.cause for t in network.run(22 * SECOND_NS)]
    assert causes.count(TraceCause.LATENCY) == 8
    assert causes.count(TraceCause.LOSS) == 1


def test_a_loss_during_a_trace_is_traced_after_it() -> None:
    """The discovery that was under way does not answer what the loss asks."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    orders = tracer.due(0)
    for token, order in enumerate(orders):
        tracer.sent(token, order)
    tracer.lost(A, 0)
    network = Network(tracer, [], "t")
    for token, order in enumerate(orders):
        tracer.completed(network.answer(token, order.ttl), 1)
    causes = [t.cause for t in tracer.finished()]
    causes.extend(t.cause for t in network.run(1))
    assert causes == [TraceCause.DISCOVERY, TraceCause.LOSS]


def test_a_flow_that_is_not_followed_is_not_traced() -> None:
    """A loss of a target that has left, or of a TCP target, starts nothing."""
    tracer = a_tracer()
    tracer.lost(A, 0)
    assert tracer.due(0) == []
    tracer.follow((A,), 0)
    tracer.follow((), 0)
    assert tracer.due(0) == []
    assert tracer.due_ns(0) is None


def test_healthy_flows_are_traced_again_every_few_minutes_not_all_at_once() -> None:
    """A hundred flows: each about every 300 s, no more than the budget in any second."""
    flows = tuple(flow(f"w{n}/r0") for n in range(100))
    tracer = a_tracer(refresh_ns=300 * SECOND_NS)
    tracer.follow(flows, 0)
    network = Network(tracer, ["n1"], "t")
    traced = [
        sum(len(network.run(second * SECOND_NS + part * 200 * MS_NS)) for part in range(5))
        for second in range(700)
    ]
    assert max(traced) <= 24
    assert sum(traced[:10]) == 100
    assert sum(traced[10:220]) == 0
    assert 190 <= sum(traced[10:]) <= 230


def test_discovery_is_limited_in_rate() -> None:
    """A thousand new targets do not make a storm: the burst, then the rate."""
    tracer = a_tracer()
    tracer.follow(tuple(flow(f"w{n}/r0") for n in range(1_000)), 0)
    network = Network(tracer, [], "t")
    assert len(network.run(0)) == 4
    assert 0 < (tracer.due_ns(0) or 0) <= 60 * MS_NS
    assert sum(len(network.run(part * 50 * MS_NS)) for part in range(1, 21)) == 20


def test_a_flow_that_moved_is_traced_again() -> None:
    """A new address is a new path."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    network = Network(tracer, [], "t")
    assert len(network.run(0)) == 1
    tracer.follow((flow("w1/r0", port=9),), SECOND_NS)
    assert [t.target.port for t in network.run(SECOND_NS)] == [9]


@pytest.mark.parametrize(
    ("status", "reporter", "reason"),
    [
        (ProbeStatus.REFUSED, "t", "t reports REFUSED"),
        (ProbeStatus.UNREACHABLE, "n2", "n2 reports UNREACHABLE"),
    ],
)
def test_a_report_of_failure_ends_the_trace_incomplete(
    status: ProbeStatus, reporter: str, reason: str
) -> None:
    """Who reports is the last hop, and the reason says what it said."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    orders = tracer.due(0)
    for token, order in enumerate(orders):
        tracer.sent(token, order)
    network = Network(tracer, ["n1"], None)
    for token, order in enumerate(orders):
        completion = network.answer(token, order.ttl)
        if order.ttl > 1:
            completion = Completion(
                token=token, status=status, reason=Reason.REPORTED, times=TIMES, reporter=reporter
            )
        tracer.completed(completion, 0)
    (trace,) = tracer.finished()
    assert not trace.complete
    assert trace.incomplete_reason == reason
    assert [h.address for h in trace.hops] == ["n1", reporter]


def test_probes_that_cannot_be_sent_give_the_reason() -> None:
    """With the own link down the trace says so, and has no hop that answered."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    for token, order in enumerate(tracer.due(0)):
        tracer.sent(token, order)
        tracer.completed(
            Completion(token=token, status=ProbeStatus.LINK_DOWN, reason=Reason.NOT_SENT), 0
        )
    (trace,) = tracer.finished()
    assert trace.incomplete_reason == "not sent: LINK_DOWN"
    assert [h.address for h in trace.hops] == [None]


def too_early(tracer: Tracer, now_ns: int, reason: Reason = Reason.PENDING) -> int:
    """Order what is due, and answer it with nothing learnt; return how many were ordered."""
    orders = tracer.due(now_ns)
    for token, order in enumerate(orders):
        tracer.sent(token, order)
    for token, _ in enumerate(orders):
        end = Completion(token=token, status=ProbeStatus.UNKNOWN, reason=reason)
        tracer.completed(end, now_ns)
    assert tracer.finished() == []
    return len(orders)


def test_a_trace_that_comes_too_early_is_made_at_the_next_answer() -> None:
    """While nothing is known nothing is told; a round trip says that the target is there."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    assert too_early(tracer, 0) == WAVE
    assert tracer.due(SECOND_NS) == []
    tracer.answered(A, 20_000, 2 * SECOND_NS)
    (trace,) = Network(tracer, ["n1"], "t").run(2 * SECOND_NS)
    assert (trace.complete, len(trace.hops)) == (True, 2)


def test_a_trace_that_is_always_too_early_is_tried_now_and_then() -> None:
    """Once at the first answer, then every half a minute: others are not kept from theirs."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    assert too_early(tracer, 0) == WAVE
    tried = []
    for second in range(1, 70):
        tracer.answered(A, 20_000, second * SECOND_NS)
        if too_early(tracer, second * SECOND_NS):
            tried.append(second)
    again_s = AGAIN_NS // SECOND_NS
    assert tried == [1, 1 + again_s, 1 + 2 * again_s]


def test_what_is_not_traced_has_no_traces() -> None:
    """A transport without answers of nodes: nothing is told, for a loss neither."""
    tracer = a_tracer()
    tracer.follow((A,), 0)
    assert too_early(tracer, 0, Reason.UNTRACED) == WAVE
    tracer.answered(A, 20_000, SECOND_NS)
    assert tracer.due(SECOND_NS) == []
    tracer.lost(A, 2 * SECOND_NS)
    assert too_early(tracer, 2 * SECOND_NS, Reason.UNTRACED) == WAVE
    assert tracer.due(3 * SECOND_NS) == []


def losing(tracer: Tracer, flows: tuple[FlowTarget, ...], now_ns: int) -> Network:
    """Let all flows have been discovered, then lose a probe each; return the network."""
    tracer.follow(flows, 0)
    network = Network(tracer, ["n1"], "t")
    for tick in range(100):
        network.run(tick * 100 * MS_NS)
    network.nodes, network.target = [None] * 8, None
    for target in flows:
        tracer.lost(target, now_ns)
    return network


def test_a_budget_bounds_the_traces_of_a_storm_and_takes_pairs_in_turn() -> None:
    """Four at once, of four pairs; then one in 2.5 s, of pairs and then of flows not traced yet."""
    flows = tuple(flow(f"w{n}/r0", number=k) for n in range(6) for k in range(3))
    tracer = a_tracer(cause_gap_ns=10 * SECOND_NS)
    tracer.set_budget(4)
    network = losing(tracer, flows, 20 * SECOND_NS)
    first = network.run(20 * SECOND_NS)
    assert len({t.target.dst for t in first}) == len(first) == 4
    assert tracer.due_ns(20 * SECOND_NS) == pytest.approx(22.5 * SECOND_NS, abs=10)
    later = []
    for second in range(21, 60):
        later += [t.target for t in network.run(second * SECOND_NS)]
    found = [t.target for t in first] + later
    assert {target.dst for target in found[:6]} == {f"w{n}/r0" for n in range(6)}
    # All of them once before any a second time: losses go on.
    assert sorted(target.key for target in found) == sorted(target.key for target in flows)


def test_what_waits_for_its_turn_and_gets_through_again_is_not_traced() -> None:
    """Its trace would show nothing of the loss."""
    flows = tuple(flow(f"w{n}/r0") for n in range(6))
    tracer = a_tracer(cause_gap_ns=10 * SECOND_NS)
    tracer.set_budget(4)
    network = losing(tracer, flows, 20 * SECOND_NS)
    traced = {t.target for t in network.run(20 * SECOND_NS)}
    for target in flows:
        tracer.answered(target, MS_NS, 21 * SECOND_NS)
    assert network.run(60 * SECOND_NS) == []
    assert tracer.suppressed == len(flows) - len(traced) == 2


def test_what_waits_for_its_turn_and_moves_is_traced_where_it_is() -> None:
    """Not at the address at which it lost its probes."""
    flows = tuple(flow(f"w{n}/r0") for n in range(6))
    tracer = a_tracer(cause_gap_ns=10 * SECOND_NS)
    tracer.set_budget(4)
    losing(tracer, flows, 20 * SECOND_NS).run(20 * SECOND_NS)
    moved = tuple(replace(f, address="10.9.9.9") for f in flows)
    tracer.follow(moved, 21 * SECOND_NS)
    orders = [order for second in range(21, 40) for order in tracer.due(second * SECOND_NS)]
    assert orders
    assert {order.target.address for order in orders} == {"10.9.9.9"}


def test_without_a_budget_the_settings_hold() -> None:
    """Also again, after one was told."""
    flows = tuple(flow(f"w{n}/r0") for n in range(40))
    tracer = a_tracer()
    tracer.set_budget(4)
    tracer.set_budget(None)
    assert len(losing(tracer, flows, 20 * SECOND_NS).run(20 * SECOND_NS)) == len(flows)


@given(
    asked=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.integers(0, 3)),
        st.integers(-1, 3),
    ),
    pairs=st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from("cd")), st.integers(0, 3)
    ),
)
def test_turns_are_fair(
    asked: dict[tuple[str, str, int], int], pairs: dict[tuple[str, str], int]
) -> None:
    """Each once; of no pair two before one of each; of equals in turn the one longest ago."""
    turns = in_turn(asked, pairs)
    assert sorted(turns) == sorted(asked)
    seen: Counter[tuple[str, str]] = Counter()
    ranks = []
    for key in turns:
        ranks.append(seen[key[:2]])
        seen[key[:2]] += 1
    assert ranks == sorted(ranks)
    first = [
        pairs.get(key[:2], -(2**62)) for key, rank in zip(turns, ranks, strict=True) if not rank
    ]
    assert first == sorted(first)
    for pair in seen:
        times = [asked[key] for key in turns if key[:2] == pair]
        assert times == sorted(times)
