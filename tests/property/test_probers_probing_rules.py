"""Invariants of pacing, rounds, backlog and ping list."""

import zlib
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from probers.clock import Instant, TokenBucket
from probers.lists.follower import PingListFollower
from probers.probing import plan
from probers.probing.rounds import Round
from probers.publish.backlog import LEAST_BYTES, LEVEL, Backlog, Message
from probers.transports.base import Completion
from probers.transports.rtt import Implausible, Timestamps, measure, place_arrival
from schemas.enums import ProbeStatus
from schemas.units import SECOND_NS
from tests.unit.probers.makers import endpoint, flow, ping_list, target

NS = st.integers(0, 2**62)


@given(st.text(max_size=30), st.integers(1, 60 * SECOND_NS))
def test_the_stagger_is_within_the_interval(agent_id: str, interval_ns: int) -> None:
    """And the same each time."""
    offset_ns = plan.stagger_ns(agent_id, interval_ns)
    assert 0 <= offset_ns < interval_ns
    assert offset_ns == plan.stagger_ns(agent_id, interval_ns)


@given(st.integers(0, 2**62), st.integers(1, 60 * SECOND_NS), st.data())
def test_the_next_start_is_ahead_by_at_most_an_interval(
    now_ns: int, interval_ns: int, data: st.DataObject
) -> None:
    """On the agent's grid, strictly after now."""
    offset_ns = data.draw(st.integers(0, interval_ns - 1))
    start_ns = plan.next_start_ns(now_ns, interval_ns, offset_ns)
    assert 0 < start_ns - now_ns <= interval_ns
    assert (start_ns - offset_ns) % interval_ns == 0


@given(st.integers(0, 2_000), st.integers(0, SECOND_NS), st.integers(1, SECOND_NS))
def test_a_spread_is_ascending_within_its_window(count: int, window_ns: int, slot_ns: int) -> None:
    """As many offsets as probes, on whole slots."""
    offsets = plan.spread_ns(count, window_ns, slot_ns)
    assert len(offsets) == count
    assert offsets == sorted(offsets)
    assert all(0 <= o <= max(0, window_ns) and o % slot_ns == 0 for o in offsets)


@given(
    st.floats(0.1, 1_000),
    st.integers(1, 100),
    st.lists(st.integers(-SECOND_NS, 10 * SECOND_NS), min_size=1, max_size=60),
)
def test_a_bucket_never_gives_more_than_burst_and_rate(
    rate_hz: float, burst: int, steps: list[int]
) -> None:
    """Over any time, forwards or backwards: burst + rate * (latest - first)."""
    bucket = TokenBucket(rate_hz, burst)
    now_ns = latest_ns = 0
    given_out = int(bucket.take_token(0))
    for step in steps:
        now_ns += step
        latest_ns = max(latest_ns, now_ns)
        given_out += sum(bucket.take_token(now_ns) for _ in range(burst + 2))
    assert given_out <= burst + rate_hz * latest_ns / SECOND_NS + 1e-6


@given(
    st.integers(1, 2_000),
    st.lists(st.tuples(st.integers(10, 900), st.booleans()), max_size=80),
)
@example(14, [(10, True), (512, True)])
def test_a_backlog_keeps_the_latest_and_loses_nothing_silently(
    room_bytes: int, contents: list[tuple[int, bool]]
) -> None:
    """Dropped and kept are all there were; what is kept is a suffix, within the room.

    Some contents are zeros, which nearly vanish when they are compressed, the others noise.
    """
    noise = Random(room_bytes)
    backlog = Backlog(room_bytes)
    dropped: list[int] = []
    too_large: list[int] = []
    for number, (size, zeros) in enumerate(contents):
        value = bytes(size) if zeros else noise.randbytes(size)
        message = Message(topic="t", kind="t", key=None, value=value, timestamp_ms=number)
        lost = [d.timestamp_ms for d in backlog.enqueue(message)]
        if lost == [number]:
            too_large.append(number)
            assert min(size, len(zlib.compress(value, LEVEL))) > room_bytes or size < LEAST_BYTES
            assert size > room_bytes
        dropped.extend(lost)
        assert backlog.size_bytes <= room_bytes
    kept = []
    while (waiting := backlog.next_message()) is not None:
        kept.append(waiting.timestamp_ms)
    assert sorted(dropped + kept) == list(range(len(contents)))
    fitting = [n for n in range(len(contents)) if n not in too_large]
    assert kept == fitting[len(fitting) - len(kept) :]


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 12), st.integers(0, 4))
def test_every_order_of_a_round_has_its_result(
    answers: list[bool], targets: int, confirm: int
) -> None:
    """Any pattern of answers: each probe sent is one result, at most 1 + confirm per target."""
    flows = [flow(f"w{n}/r0") for n in range(1, targets + 1)]
    probing = Round(
        seq=0,
        started=Instant(0, 0),
        pinglist_version=1,
        plan=[(n * 1_000, f) for n, f in enumerate(flows)],
        confirm=confirm,
    )
    outcomes = iter(answers)
    token = 0
    while not probing.done:
        for order in probing.due(10**9):
            token += 1
            probing.sent(token, order, 10**9)
            status = ProbeStatus.OK if next(outcomes, True) else ProbeStatus.TIMEOUT
            times = Timestamps(posted_ns=0, sent_ns=0, received_ns=1, handled_ns=1, hold_ns=0)
            probing.completed(Completion(token=token, status=status, times=times))
    results = probing.results()
    assert len(results) == token
    for each in flows:
        mine = [r.status for r in results if r.dst == each.dst]
        assert 1 <= len(mine) <= confirm + 1
        assert all(status is ProbeStatus.TIMEOUT for status in mine[:-1])
        if mine[-1] is not ProbeStatus.OK:
            assert len(mine) == confirm + 1


@given(NS, NS, NS, NS, st.one_of(st.none(), st.integers(-(2**62), 2**62)))
def test_a_measurement_is_never_negative(
    posted: int, sent: int, received: int, handled: int, hold: int | None
) -> None:
    """Any five numbers: a reason, or times that are all zero or more."""
    outcome = measure(
        Timestamps(
            posted_ns=posted, sent_ns=sent, received_ns=received, handled_ns=handled, hold_ns=hold
        )
    )
    if not isinstance(outcome, Implausible):
        assert outcome.rtt_ns >= 0
        assert outcome.prober_delay_ns >= 0
        assert outcome.responder_delay_ns is None or outcome.responder_delay_ns >= 0


@given(
    st.integers(0, 10 * SECOND_NS),
    st.integers(-100 * SECOND_NS, 100 * SECOND_NS),
    st.integers(-200 * SECOND_NS, 200 * SECOND_NS),
)
def test_an_arrival_lies_between_posting_and_handling(
    elapsed_ns: int, step_ns: int, stamp_ns: int
) -> None:
    """Any stamp, any step of the wall clock."""
    posted = Instant(500 * SECOND_NS, 1_000 * SECOND_NS)
    now = Instant(500 * SECOND_NS + elapsed_ns, 1_000 * SECOND_NS + elapsed_ns + step_ns)
    received_ns, _ = place_arrival(1_000 * SECOND_NS + stamp_ns, now=now, posted=posted)
    assert posted.monotonic_ns <= received_ns <= now.monotonic_ns


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("list"), st.lists(st.integers(1, 6), max_size=6), st.integers(1, 5)),
        st.tuples(st.just("up"), st.integers(1, 6), st.integers(1, 3)),
        st.tuples(st.just("down"), st.integers(1, 6), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(EVENTS)
def test_active_is_listed_and_registered(events: list[tuple[str, object, int]]) -> None:
    """After any history: active is what the list names and whose latest record registers it."""
    agent = PingListFollower(
        cluster="c1", agent_id="agent-a", endpoints=frozenset({"w0/r0"}), max_flows=4
    )
    agent.read_to_end()
    listed: set[str] = set()
    ports: dict[str, int] = {}
    version = 0
    for kind, what, number in events:
        if kind == "list" and isinstance(what, list):
            names = [f"w{n}/r0" for n in what]
            accepted = number >= version
            agent.offer(ping_list(*(target("w0/r0", n) for n in names), version=number))
            if accepted:
                listed, version = set(names), number
        elif kind == "up":
            agent.registered(endpoint(f"w{what}/r0", port=number))
            ports[f"w{what}/r0"] = number
        else:
            agent.left(f"w{what}/r0")
            ports.pop(f"w{what}/r0", None)
        active = {(f.dst, f.port) for f in agent.flows()}
        assert active == {(n, ports[n]) for n in listed if n in ports}
        assert agent.targets_waiting == len(listed) - len(active)
