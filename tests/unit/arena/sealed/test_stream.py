"""Worlds as streams of records."""

from collections import Counter
from dataclasses import replace

import pytest

from arena.sealed.draw import FAMILIES, draw
from schemas import topics
from schemas.codec import Codec
from schemas.enums import ComponentKind
from schemas.units import MS_NS


@pytest.mark.parametrize("family", FAMILIES)
def test_every_record_is_within_the_contract(family: str) -> None:
    """Each encodes, decodes within bounds at its arrival to the same record, under its key."""
    # Eight minutes: two of them with what was drawn.
    world = replace(draw(3, family), duration_s=480)
    codec = Codec()
    seen: Counter[str] = Counter()
    last_ms = 0
    names: set[str] = set()
    for timed in world.records():
        topic = topics.topic_named(timed.topic)
        assert timed.arrival_ms >= last_ms
        last_ms = timed.arrival_ms
        seen[timed.topic] += 1
        if timed.record is None:
            assert topic.compacted
            continue
        assert getattr(timed.record, topic.key_field) == timed.key
        assert timed.record.cluster == world.cluster
        if timed.topic == topics.TOPOLOGY.name:
            names.add(timed.key)
        elif timed.topic == topics.ENDPOINT.name:
            names |= {timed.record.container_id, timed.record.endpoint_id}
        if seen[timed.topic] % 11 == 1:
            value = codec.encode(topic, timed.record)
            decoded = codec.decode(topic, value, arrival_ns=timed.arrival_ms * MS_NS)
            assert decoded == timed.record
    assert {t for t in seen if t not in ("overlay.flows.v1", "path.trace.v1")} >= {
        "topology.v1", "task.v1", "endpoint.v1", "pinglist.v1", "probe.round.v1",
        "agent.heartbeat.v1", "component.state.v1",
    }  # fmt: skip
    for injected in world.injected:
        assert injected.components <= names
    assert last_ms * MS_NS <= world.start_ns + (world.duration_s + 30) * 10**9


def test_rounds_and_heartbeats_come_once_a_second() -> None:
    """Of every agent, from the start on."""
    world = draw(5, "confounders")
    rounds: Counter[str] = Counter()
    beats: Counter[str] = Counter()
    for timed in world.records():
        if timed.arrival_ms > world.start_ns // MS_NS + 60_000:
            break
        rounds[timed.key] += timed.topic == topics.PROBE_ROUND.name
        beats[timed.key] += timed.topic == topics.HEARTBEAT.name
    probing = [count for count in rounds.values() if count]
    assert probing
    assert min(probing) >= 55
    assert min(count for count in beats.values() if count) >= 57


def test_the_topology_has_two_known_ends_for_each_link() -> None:
    """And a parent that is there for all that has one."""
    world = draw(4, "gray")
    components = {}
    for timed in world.records():
        if timed.topic != topics.TOPOLOGY.name:
            break
        components[timed.key] = timed.record
    for component in components.values():
        if component.kind is ComponentKind.LINK:
            assert {component.a, component.b} <= set(components)
        else:
            assert component.parent is None or component.parent in components
