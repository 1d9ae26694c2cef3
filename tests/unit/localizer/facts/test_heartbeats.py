"""Heartbeats as columns are the heartbeats that were sent, and are applied as one by one."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localizer.config import GRID_NS, LocalizerConfig
from localizer.core import Core
from localizer.facts.agent_counts import AgentCounts
from localizer.facts.heartbeats import HeartbeatReader
from localizer.facts.inputs import Event, RecordIntake, Sources
from localizer.facts.liveness import RECONNECT_NS
from localizer.network.topology import Topology
from localizer.network.trace_reader import Places
from schemas.codec import Codec
from schemas.enums import AgentState, ProbingState
from schemas.records import Heartbeat
from schemas.topics import ENDPOINT, HEARTBEAT
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.batched import feed_batched, heartbeats_of, is_plain
from tests.unit.localizer.made import START, endpoint, heartbeat
from tests.unit.localizer.sources import sources

CODEC = Codec()


def test_columns_are_the_heartbeats_that_were_sent() -> None:
    """Those in words, of others, garbage and tombstones are left to whoever looks at each."""
    plain = heartbeat("a", START, 3, probing=ProbingState.PROBING, flows_active=7)
    away = replace(plain, broker_away=True, clock_offset_ns=-5, clock_error_ns=2, seq=4)
    leaving = replace(plain, state=AgentState.LEAVING, producer_version="1.2", packets_filtered=9)
    sent = [
        plain,
        replace(plain, probing=ProbingState.DISPLACED, displaced_by=9),
        replace(plain, list_refusal="too long"),
        replace(plain, probing_reason="waits"),
        replace(plain, cluster="elsewhere"),
        away,
        leaving,
    ]
    values = [CODEC.encode(HEARTBEAT, beat) for beat in sent] + [values_of(plain), b"", b"x"]
    keys = [b"a"] * len(sent) + [b"b", b"a", b"a"]
    number = np.arange(len(values))
    batch, taken = HeartbeatReader(CODEC, plain.cluster).read_batch(
        keys, values, np.full(len(values), START), Places(START + number, number % 2, number)
    )
    assert np.flatnonzero(taken).tolist() == [0, 5, 6]
    assert batch is not None
    assert list(batch.records(np.arange(3))) == [
        plain,
        away,
        replace(leaving, producer_version=None),
    ]
    assert batch.offset.tolist() == [0, 5, 6]
    assert batch.partition.tolist() == [0, 1, 0]
    assert batch.at_ns.tolist() == [START, START + 5, START + 6]


def values_of(beat: Heartbeat) -> bytes:
    """Return a heartbeat's message."""
    return CODEC.encode(HEARTBEAT, beat)


def history(rng: random.Random) -> list[tuple[int, Event]]:
    """Return what agents send to whom something happens now and then, and when it is read.

    They pause, restart, leave, move, repeat themselves, complain, go, and for some seconds nobody
    is heard; a partition's clock may be behind. Some time stamps are coarse, so that many arrive at
    one time.
    """
    names = [f"a{number}" for number in range(rng.randint(1, 8))]
    partition = {name: rng.randrange(3) for name in names}
    skewed = rng.choice([None, 0, 1])
    grain_ns = rng.choice([MS_NS, 100 * MS_NS, SECOND_NS])
    last = {name: heartbeat(name, START, 0, probing=ProbingState.PROBING) for name in names}
    due_ns = {name: START + rng.randrange(SECOND_NS) for name in names}
    events: list[tuple[int, Event]] = []
    pause_ns = START + rng.randrange(5, 30) * SECOND_NS
    for offset in range(rng.randint(10, 500)):
        name = min(due_ns, key=due_ns.__getitem__)
        at_ns, beat = due_ns[name] // grain_ns * grain_ns, last[name]
        change: dict[str, Any] = {"seq": beat.seq + 1, "state": AgentState.RUNNING}
        change |= {"host_delay_ns": rng.choice([None, 5]), "flows_active": rng.choice([None, 3])}
        change |= {"clock_offset_ns": rng.choice([None, 10**6, 10**6, 2 * SECOND_NS])}
        odd = rng.random()
        if odd < 0.03:
            change["incarnation"] = beat.incarnation + 1
            change["seq"] *= rng.randrange(2)
        elif odd < 0.06:
            change |= {"state": AgentState.LEAVING}
        elif odd < 0.09:
            change |= {"host_id": rng.choice(["h0", "h1"])}
        elif odd < 0.12:
            partition[name] = rng.randrange(3)
        elif odd < 0.15:
            change |= {"seq": max(0, beat.seq - rng.randrange(6))}
        elif odd < 0.18:
            change |= {
                "interval_ns": rng.choice([SECOND_NS // 2, SECOND_NS, 2 * SECOND_NS, 2 * SECOND_NS])
            }
        elif odd < 0.21:
            change |= {"probing": rng.choice(list(ProbingState))}
        elif odd < 0.24:
            change |= {"list_refusal": rng.choice([None, "no"])}
            change |= {"probing_reason": rng.choice([None, "so"])}
        last[name] = beat = replace(beat, **change)
        due_ns[name] = at_ns + beat.interval_ns + rng.randrange(20) * MS_NS
        due_ns[name] += rng.choice([0] * 20 + [3, 3, 6]) * SECOND_NS
        if at_ns < pause_ns <= due_ns[name]:
            due_ns[name] += 6 * SECOND_NS
        told_ns = at_ns - 7 * SECOND_NS if partition[name] == skewed else at_ns
        event = Event(told_ns, HEARTBEAT.name, name, partition[name], 2 * offset, beat)
        events.append((at_ns, event))
        if odd > 0.97:
            # Twice, or two at once.
            again = replace(beat, seq=beat.seq + rng.randrange(2), host_delay_ns=7)
            again = replace(again, probing_reason=rng.choice([None, "so"]))
            events.append((at_ns, replace(event, offset=2 * offset + 1, record=again)))
        elif odd > 0.96:
            events.append((at_ns, replace(event, offset=2 * offset + 1, record=None)))
    return events


def kept(facts: Sources, names: set[str], now_ns: int) -> tuple[Any, ...]:
    """Return all that is known of agents."""
    liveness, reports = facts.liveness, facts.reports
    liveness.any_silent(now_ns)
    return (
        [(liveness.get(name), reports.get(name)) for name in sorted(names)],
        liveness.excusable(),
        liveness.dead | liveness.unheard,
        reports.notable,
        reports.displaced,
        reports.flows_active(),
        {name: liveness.lived_ns(name, now_ns - RECONNECT_NS) for name in names},
        facts.missed_ns(now_ns),
        liveness.uninformative(({},), now_ns),
        liveness.agents.usual_interval_ns,
        liveness.refused,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
# Of two heartbeats of an agent at one time only one may stand in a batch.
@example(208)
def test_batches_are_applied_as_one_by_one(seed: int) -> None:
    """Step by step, whatever the agents do, whoever of them is registered, how much is waiting."""
    chance = random.Random(seed)
    waiting = history(chance)
    names = {event.key for _, event in waiting}
    config = LocalizerConfig().core("lab")
    ours, naive = Core(config), Core(config)
    for number, name in enumerate(sorted(name for name in names if chance.random() < 0.8)):
        record = endpoint(f"e{number}", name)
        event = Event(START - SECOND_NS, ENDPOINT.name, record.endpoint_id, 0, number, record)
        for core in (ours, naive):
            core.feed(event)
    now_ns = START
    # What is there already when a localizer begins.
    ahead_ns = chance.choice([0, 0, 40 * SECOND_NS])
    while waiting:
        for core in (ours, naive):
            core.advance(now_ns)
        assert kept(ours.sources, names, now_ns) == kept(naive.sources, names, now_ns)
        now_ns += chance.choice([1, 1, 1, 8]) * GRID_NS
        # What a clock that is behind has stamped is read, and applied, later.
        read = [event for at_ns, event in waiting if at_ns <= now_ns + ahead_ns]
        waiting = [(at_ns, event) for at_ns, event in waiting if at_ns > now_ns + ahead_ns]
        for event in read:
            naive.feed(event)
        while read:
            count = chance.randint(1, 20)
            feed_batched(ours, read[:count])
            read = read[count:]


def test_a_partition_that_resumes_is_noticed() -> None:
    """Though its agent, which reports seldom, was not silent for long by its own interval."""
    facts = sources(Topology())
    intake = RecordIntake(facts)
    partition = {"often": 0, "seldom": 1, "away": 1}
    heard_s = {"often": range(11), "seldom": (0, 2, 4, 8, 9), "away": (0, 1, 2, 3, 10)}
    for second in range(11):
        at_ns = START + second * SECOND_NS
        events: list[Event] = []
        for name, own in partition.items():
            interval_ns = 2 * SECOND_NS if name == "seldom" else SECOND_NS
            beat = heartbeat(name, at_ns, second, interval_ns=interval_ns)
            if second in heard_s[name]:
                events.append(Event(at_ns, HEARTBEAT.name, name, own, second, beat))
        for event in intake.apply_heartbeats(heartbeats_of(events), (), at_ns):
            intake.apply_event(event, at_ns)
    away = facts.liveness.get("away")
    assert away is not None
    # Its partition paused for four seconds of the seven.
    assert away.silences == ()


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 7, 40, 500]))
def test_counts_of_a_batch_are_those_of_each(seed: int, size: int) -> None:
    """Also of more agents than are counted, of repeated heartbeats, and of another process."""
    chance = random.Random(seed)
    counts, naive = AgentCounts(4), AgentCounts(4)
    events = [event for _, event in history(chance) if event.record and is_plain(event.record)]
    events = [
        replace(e, record=replace(e.record, rounds_sent=chance.randrange(99))) for e in events
    ]
    for begin in range(0, len(events), size):
        part = events[begin : begin + size]
        counts.observe_batch(heartbeats_of(part))
        for event in part:
            naive.observe_heartbeat(event.record)
        assert counts.totals == naive.totals
        assert len(counts) == len(naive)
