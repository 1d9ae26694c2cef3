"""State, reasons and the percentile of a heartbeat."""

from dataclasses import fields, replace

from probers.reporting.heartbeat import (
    SHOWN_NS,
    BrokerAbsence,
    ClockWatch,
    CountWatch,
    Delays,
    FloodWatch,
    HeartbeatBuilder,
    Vitals,
)
from schemas.enums import AgentState, ProbingState
from schemas.units import SECOND_NS
from tests.unit.probers.clocks import ManualClock

VITALS = Vitals(
    endpoints=4,
    targets_active=10,
    targets_waiting=2,
    pinglist_version=3,
    rounds_sent=5,
    results_sent=50,
    rounds_dropped=0,
    replies_duplicate=0,
    replies_late=0,
    replies_foreign=0,
    packets_malformed=0,
    records_undecodable=0,
    broker_away=False,
    host_delay_ns=None,
    registered=True,
    probing=ProbingState.PROBING,
    probing_reason=None,
    displaced_by=None,
    flows_active=20,
    lists_refused=0,
    list_refusal=None,
    registrations_refused=0,
    clock_offset_ns=-3_000_000,
    clock_error_ns=1_000_000,
    clock_offset_reason=None,
    packets_filtered=9,
)


def test_the_state_follows_from_the_vitals() -> None:
    """STARTING, RUNNING, DEGRADED with all reasons, LEAVING; numbered from 0."""
    heart = HeartbeatBuilder(cluster="c1", agent_id="a", host_id="h", interval_ns=SECOND_NS)
    now = ManualClock().now()
    beats = [
        heart.build(replace(VITALS, registered=False), incarnation=7, now=now),
        heart.build(VITALS, incarnation=7, now=now),
        heart.build(replace(VITALS, reasons=["broker away", "x"]), incarnation=7, now=now),
        heart.build(replace(VITALS, reasons=["x"]), incarnation=7, now=now, leaving=True),
    ]
    assert [(b.seq, b.state, b.state_reason) for b in beats] == [
        (0, AgentState.STARTING, None),
        (1, AgentState.RUNNING, None),
        (2, AgentState.DEGRADED, "broker away; x"),
        (3, AgentState.LEAVING, None),
    ]
    assert beats[0].sent_at == now.epoch_us


def test_a_clock_that_is_set_is_noticed_told_and_forgotten() -> None:
    """By how much, for a minute; slewing is no step."""
    clock = ManualClock()
    watch = ClockWatch(clock.now())
    for _ in range(1_000):
        clock.advance(SECOND_NS)
        clock.step(500_000)
        assert watch.look(clock.now()) is None
    clock.step(-90 * SECOND_NS)
    assert watch.look(clock.now()) == -90 * SECOND_NS
    assert watch.look(clock.now()) is None
    assert watch.reason(clock.now()) == "clock set by -90.000 s"
    clock.advance(SHOWN_NS + 1)
    assert watch.reason(clock.now()) is None
    assert watch.steps == 1


def test_drops_are_told_for_a_while_with_their_number() -> None:
    """New drops renew the reason; none for a minute ends it."""
    clock = ManualClock()
    watch = CountWatch("records dropped")
    assert watch.reason(0, clock.now()) is None
    assert watch.reason(3, clock.now()) == "3 records dropped"
    clock.advance(SHOWN_NS - 1)
    assert watch.reason(5, clock.now()) == "5 records dropped"
    clock.advance(SHOWN_NS)
    assert watch.reason(5, clock.now()) == "5 records dropped"
    clock.advance(2)
    assert watch.reason(5, clock.now()) is None


def test_an_absence_of_the_broker_is_told_while_it_lasts_and_for_a_minute_after() -> None:
    """How long it was, from when the absence was seen; the longest of a minute."""
    clock = ManualClock()
    absence = BrokerAbsence()
    assert not absence.look(clock.now(), away=False)
    assert absence.reason(clock.now()) is None
    for seconds in (19.5, 3):
        assert absence.look(clock.now(), away=True)
        clock.advance(int(seconds * SECOND_NS))
        assert not absence.look(clock.now(), away=True)
        assert (absence.away, absence.reason(clock.now())) == (True, "broker away")
        assert absence.look(clock.now(), away=False)
        clock.advance(SHOWN_NS)
        assert not absence.away
        assert absence.reason(clock.now()) == f"broker was away for {seconds:.1f} s"
        clock.advance(1)
        assert absence.reason(clock.now()) is None
    for seconds in (300, 1):
        absence.look(clock.now(), away=True)
        clock.advance(seconds * SECOND_NS)
        absence.look(clock.now(), away=False)
    assert absence.reason(clock.now()) == "broker was away for 300.0 s"


def test_the_percentile_is_of_one_interval() -> None:
    """Nearest rank over what came since the last heartbeat; nothing came: None."""
    delays = Delays()
    assert delays.take_percentile_ns() is None
    delays.add(5)
    assert delays.take_percentile_ns() == 5
    for delay_ns in range(20):
        delays.add(delay_ns)
    assert delays.take_percentile_ns() == 18
    assert delays.take_percentile_ns() is None


def test_a_flood_of_delays_does_not_grow() -> None:
    """What is kept for one heartbeat is bounded."""
    delays = Delays()
    for _ in range(10_000):
        delays.add(1)
    assert delays.take_percentile_ns() == 1


def test_a_heartbeat_carries_what_was_gathered() -> None:
    """Every field of the vitals that the record has too."""
    heart = HeartbeatBuilder(cluster="c1", agent_id="a", host_id="h", interval_ns=SECOND_NS)
    beat = heart.build(VITALS, incarnation=7, now=ManualClock().now())
    shared = {f.name for f in fields(Vitals)} & {f.name for f in fields(beat)}
    assert len(shared) == len(fields(Vitals)) - 2  # `registered` and `reasons` make the state
    assert {name: getattr(beat, name) for name in shared} == {
        name: getattr(VITALS, name) for name in shared
    }


def test_a_flood_is_mentioned_while_it_lasts() -> None:
    """By the packets dropped since the heartbeat before; some strays are none."""
    clock = ManualClock()
    watch = FloodWatch(clock.now())
    said = []
    for dropped in (0, 999, 150_999, 151_000):
        clock.advance(SECOND_NS)
        said.append(watch.reason(dropped, clock.now()))
    assert said == [None, None, "a flood: 150,000 packets/s dropped", None]
