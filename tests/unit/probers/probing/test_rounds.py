"""A round: when what is sent, what is sent again, when it is over."""

from probers.clock import Instant
from probers.probing.rounds import Round, round_down_ns
from probers.transports.base import Completion, Reason
from probers.transports.rtt import Timestamps
from schemas.enums import ClockSource, ProbeStatus
from schemas.units import MS_NS
from tests.unit.probers.makers import flow

START = Instant(1_000 * MS_NS, 5_000 * MS_NS)
A, B = flow("w1/r0"), flow("w2/r0")


def ok(token: int) -> Completion:
    """Return an answer after 40 us."""
    times = Timestamps(
        posted_ns=0, sent_ns=0, received_ns=50_000, handled_ns=60_000, hold_ns=10_000
    )
    return Completion(token=token, status=ProbeStatus.OK, clock=ClockSource.KERNEL, times=times)


def lost(token: int) -> Completion:
    """Return a timeout."""
    return Completion(token=token, status=ProbeStatus.TIMEOUT)


def a_round(confirm: int = 2) -> Round:
    """Return a round with A at once and B after 100 ms."""
    return Round(
        seq=3,
        started=START,
        pinglist_version=1,
        plan=[(0, A), (100 * MS_NS, B)],
        confirm=confirm,
    )


def at(after_ms: int) -> int:
    """Return monotonic nanoseconds so long after the start."""
    return START.monotonic_ns + after_ms * MS_NS


def test_probes_are_due_at_their_offsets() -> None:
    """Nothing early, and all that was missed when the caller is late."""
    probing = a_round()
    assert probing.due_ns == at(0)
    assert [o.target for o in probing.due(at(0))] == [A]
    assert probing.due(at(99)) == []
    assert probing.due_ns == at(100)
    assert [o.target for o in probing.due(at(500))] == [B]
    assert probing.due_ns is None
    late = a_round()
    assert [o.target for o in late.due(at(500))] == [A, B]


def test_a_dead_flow_shows_its_losses_in_a_row_within_one_round() -> None:
    """A lost probe is sent again at once, `confirm` times, each a result of its own."""
    probing = a_round(confirm=2)
    for token, sent_ms in enumerate((0, 250, 500)):
        (order,) = probing.due(at(sent_ms) if token else at(0))[:1]
        assert order.target == A
        assert order.attempt == token
        probing.sent(token, order, at(sent_ms))
        probing.completed(lost(token))
        if token == 0:
            assert probing.due_ns == 0
    assert [o.target for o in probing.due(at(750))] in ([], [B])


def test_results_stand_in_the_order_sent_and_a_round_ends_with_its_last() -> None:
    """Answers may come in any order; the round is done when none is missing."""
    probing = a_round(confirm=1)
    (first,) = probing.due(at(0))
    probing.sent(1, first, at(0))
    (second,) = probing.due(at(100))
    probing.sent(2, second, at(100))
    probing.completed(ok(2))
    assert not probing.done
    probing.completed(lost(1))
    assert not probing.done
    (again,) = probing.due(at(260))
    assert (again.target, again.attempt) == (A, 1)
    probing.sent(3, again, at(260))
    probing.completed(ok(3))
    assert probing.done
    assert [(r.dst, round(r.sent_offset_ns / MS_NS), r.status) for r in probing.results()] == [
        ("w1/r0", 0, ProbeStatus.TIMEOUT),
        ("w2/r0", 100, ProbeStatus.OK),
        ("w1/r0", 260, ProbeStatus.OK),
    ]


def test_a_result_has_numbers_only_when_it_is_ok() -> None:
    """OK carries RTT, both delays and the clock; anything else carries none of them."""
    probing = a_round(confirm=0)
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0))
    _, good = probing.completed(ok(1))
    assert good is not None
    assert (good.rtt_ns, good.prober_delay_ns, good.responder_delay_ns) == (40_000, 9_216, 9_216)
    assert good.clock is ClockSource.KERNEL
    (order,) = probing.due(at(100))
    probing.sent(2, order, at(100))
    _, bad = probing.completed(lost(2))
    assert bad is not None
    assert (bad.rtt_ns, bad.prober_delay_ns, bad.responder_delay_ns) == (None, None, None)


def test_offsets_and_delays_are_told_without_the_digits_that_say_nothing() -> None:
    """In multiples of 1,024 ns, rounded down, so that order stays; round trips to the ns."""
    told = [round_down_ns(ns) for ns in range(0, 5_000, 7)]
    assert told == sorted(told)
    assert all(0 <= ns - each < 1_024 for each, ns in zip(told, range(0, 5_000, 7), strict=True))
    probing = a_round(confirm=0)
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0) + 5_000)
    times = Timestamps(posted_ns=0, sent_ns=0, received_ns=43_211, handled_ns=54_321, hold_ns=7_777)
    _, result = probing.completed(
        Completion(token=1, status=ProbeStatus.OK, clock=ClockSource.HARDWARE, times=times)
    )
    assert result is not None
    assert (result.sent_offset_ns, result.rtt_ns) == (4_096, 43_211 - 7_777)
    assert (result.prober_delay_ns, result.responder_delay_ns) == (10_240, 7_168)


def test_an_ok_without_believable_times_is_a_bad_reply() -> None:
    """No transport can make the agent publish a negative RTT."""
    probing = a_round(confirm=0)
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0))
    times = Timestamps(posted_ns=0, sent_ns=0, received_ns=5, handled_ns=5, hold_ns=6)
    _, result = probing.completed(Completion(token=1, status=ProbeStatus.OK, times=times))
    assert result is not None
    assert result.status is ProbeStatus.BAD_REPLY
    assert result.rtt_ns is None


def test_a_probe_whose_way_is_still_looked_for_has_no_result() -> None:
    """Nothing was learnt: it is neither lost nor confirmed, and the round ends without it."""
    probing = a_round(confirm=2)
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0))
    pending = Completion(token=1, status=ProbeStatus.UNKNOWN, reason=Reason.PENDING)
    assert probing.completed(pending) == (order.target, None)
    (order,) = probing.due(at(100))
    probing.sent(2, order, at(100))
    probing.completed(ok(2))
    assert probing.due(at(300)) == []
    assert [r.status for r in probing.results()] == [ProbeStatus.OK]


def test_a_target_that_left_in_the_middle_is_not_probed_again() -> None:
    """Its loss stands as it was; it is not confirmed."""
    probing = Round(
        seq=0,
        started=START,
        pinglist_version=None,
        plan=[(0, A)],
        confirm=2,
        wanted=lambda target: target != A,
    )
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0))
    probing.completed(lost(1))
    assert probing.done
    assert len(probing.results()) == 1


def test_a_cancelled_round_ends_with_what_is_under_way() -> None:
    """At SIGTERM nothing more is sent, and no result that is in is thrown away."""
    probing = a_round()
    (order,) = probing.due(at(0))
    probing.sent(1, order, at(0))
    probing.cancel()
    assert not probing.done
    probing.completed(lost(1))
    assert probing.done
    assert [r.status for r in probing.results()] == [ProbeStatus.TIMEOUT]
