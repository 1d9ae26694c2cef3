"""The topic plan: what differs, what is refused, and that applying it ends the difference."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.topics.plan import (
    Configure,
    Create,
    FoundTopic,
    Grow,
    Options,
    Plan,
    Refuse,
    WantedTopic,
    holds,
    plan,
    wanted_topics,
)
from schemas import avro
from schemas.topics import BY_NAME, DLQ_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, TOPICS

BY_DEFAULT = {t.name: t for t in wanted_topics()}
SINGLE = [t.name for t in TOPICS if t.partitions == 1]


def as_found(topic: WantedTopic, **changes: object) -> FoundTopic:
    """Return the topic as a broker would show it once it is right, with changes."""
    found = FoundTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=1,
        config={**topic.config, "segment.bytes": "1073741824"},
    )
    return replace(found, **changes)  # type: ignore[arg-type] # the tests' own keywords


def test_empty_cluster_gets_everything() -> None:
    """Each topic of the contract and its dead-letter topic is created."""
    found = plan(wanted_topics(), {})
    assert all(isinstance(d, Create) for d in found.differences)
    names = [d.topic.name for d in found.differences if isinstance(d, Create)]
    assert names == [n for t in TOPICS for n in (t.name, t.dlq)]


def test_right_cluster_needs_nothing() -> None:
    """Settings that we do not name are the operator's, and no difference."""
    wanted = wanted_topics()
    assert plan(wanted, {t.name: as_found(t) for t in wanted}) == Plan()


def test_prefix_is_before_every_name() -> None:
    """With a prefix no topic of the unprefixed set is touched."""
    assert {t.name for t in wanted_topics("x.")} == {f"x.{n}" for n in BY_DEFAULT}


def test_settings_follow_the_registry() -> None:
    """Cleanup policy, retention in milliseconds and tombstone retention come from the registry."""
    rounds = BY_DEFAULT["probe.round.v1"].config
    assert rounds["cleanup.policy"] == "delete"
    assert rounds["retention.ms"] == str(3 * 24 * 3600 * 1000)
    endpoints = BY_DEFAULT["endpoint.v1"].config
    assert endpoints["cleanup.policy"] == "compact"
    assert "retention.ms" not in endpoints
    assert int(endpoints["delete.retention.ms"]) > 0
    assert BY_DEFAULT["agent.heartbeat.v1"].config["retention.ms"]
    assert BY_DEFAULT["anomaly.v1.dlq"].config["retention.ms"] == str(14 * 24 * 3600 * 1000)


def test_dead_letters_fit_where_their_values_did() -> None:
    """The broker takes what the codec takes, and a dead letter may be larger by its headers."""
    assert MAX_MESSAGE_BYTES >= avro.MAX_VALUE_BYTES
    assert MAX_MESSAGE_BYTES < DLQ_MAX_MESSAGE_BYTES


def test_partitions_size_what_grows_with_the_cluster() -> None:
    """--partitions leaves ordered and compacted topics alone; rounds and windows stay equal."""
    sized = {t.name: t.partitions for t in wanted_topics("", Options(partitions=12))}
    assert sized["probe.round.v1"] == sized["probe.window.v1"] == sized["anomaly.v1"] == 12
    assert sized["fault.event.v1"] == 1
    assert sized["endpoint.v1"] == BY_NAME["endpoint.v1"].partitions
    assert sized["probe.round.v1.dlq"] == 1


def test_agents_size_what_each_reads_a_partition_of() -> None:
    """16 agents a partition; a plan that is not told their number takes any that is there."""
    sized = {t.name: t for t in wanted_topics("", Options(agents=5_000))}
    assert {n: t.partitions for n, t in sized.items() if t.partitions != 4 and n in BY_NAME} == {
        "pinglist.v1": 313, "target.v1": 313, **dict.fromkeys(SINGLE, 1),
    }  # fmt: skip
    name = "target.v1"
    large = {name: as_found(sized[name])}
    assert plan([BY_DEFAULT[name]], large) == plan([sized[name]], large) == Plan()
    (refused,) = plan([sized[name]], {name: as_found(BY_DEFAULT[name])}).differences
    assert refused == Refuse(name=name, found=4, wanted=313)


def test_keep_all_switches_deletion_by_age_off() -> None:
    """Topics for a replay keep records that are older than their retention."""
    kept = {t.name: t.config for t in wanted_topics("r.", Options(keep_all=True))}
    assert kept["r.probe.round.v1"]["retention.ms"] == "-1"
    assert "retention.ms" not in kept["r.endpoint.v1"]


def test_the_broker_sets_the_timestamps_but_of_windows_and_replays() -> None:
    """Arrival is the one time that no writer can set; a replay keeps what was recorded."""
    kind = "message.timestamp.type"
    by_event_time = {n for n, t in BY_DEFAULT.items() if t.config[kind] == "CreateTime"}
    assert by_event_time == {"probe.window.v1"}
    assert {t.config[kind] for t in BY_DEFAULT.values()} == {"CreateTime", "LogAppendTime"}
    kept = {t.name: t.config[kind] for t in wanted_topics("", Options(keep_all=True))}
    assert {kept[name] for name in BY_NAME} == {"CreateTime"}


def test_fewer_partitions_grow_more_are_refused() -> None:
    """A topic grows; it never shrinks, and the refusal says what to do."""
    wanted = BY_DEFAULT["probe.round.v1"]
    few = plan([wanted], {wanted.name: as_found(wanted, partitions=2)})
    assert few.differences == (Grow(name=wanted.name, found=2, wanted=4),)
    many = plan([wanted], {wanted.name: as_found(wanted, partitions=6)})
    assert many.differences == (Refuse(name=wanted.name, found=6, wanted=4),)
    assert many.changes == ()
    assert "--partitions 6" in str(many.refusals[0])


def test_compacted_topic_does_not_grow() -> None:
    """A key in two partitions would have two latest records; that is refused with the reason."""
    wanted = BY_DEFAULT["endpoint.v1"]
    found = plan([wanted], {wanted.name: as_found(wanted, partitions=2)})
    assert found.refusals == (Refuse(name=wanted.name, found=2, wanted=4),)
    assert "compacted" in str(found.refusals[0])


def test_changed_setting_is_shown_old_and_new() -> None:
    """Only the settings that differ are named, with both values."""
    wanted = BY_DEFAULT["probe.round.v1"]
    config = {**wanted.config, "retention.ms": "5"}
    found = plan([wanted], {wanted.name: as_found(wanted, config=config)})
    (change,) = found.differences
    assert isinstance(change, Configure)
    assert change.wanted == {"retention.ms": wanted.config["retention.ms"]}
    assert str(change) == f"~ probe.round.v1: retention.ms: 5 -> {wanted.config['retention.ms']}"


def test_order_within_cleanup_policy_is_no_difference() -> None:
    """Brokers give `compact,delete` back in an order of their own."""
    wanted = BY_DEFAULT["agent.heartbeat.v1"]
    config = {**wanted.config, "cleanup.policy": "delete,compact"}
    assert plan([wanted], {wanted.name: as_found(wanted, config=config)}) == Plan()


@pytest.mark.parametrize("kind", [Create, Grow, Configure, Refuse])
def test_every_difference_is_one_line(kind: type) -> None:
    """What is printed can be read line by line, and begins with its sign."""
    wanted = BY_DEFAULT["probe.round.v1"]
    clusters = {
        Create: {},
        Grow: {wanted.name: as_found(wanted, partitions=1)},
        Configure: {wanted.name: as_found(wanted, config={})},
        Refuse: {wanted.name: as_found(wanted, partitions=9)},
    }
    (difference,) = plan([wanted], clusters[kind]).differences
    assert type(difference) is kind
    assert str(difference)[0] == {Create: "+", Grow: "~", Configure: "~", Refuse: "!"}[kind]
    assert "\n" not in str(difference)


def applied(found: dict[str, FoundTopic], done: Plan) -> dict[str, FoundTopic]:
    """Return the cluster after the changes, as Kafka would make them."""
    after = dict(found)
    for change in done.changes:
        match change:
            case Create(topic=topic):
                after[topic.name] = as_found(topic)
            case Grow(name=name, wanted=wanted):
                after[name] = replace(after[name], partitions=wanted)
            case Configure(name=name, wanted=settings):
                after[name] = replace(after[name], config={**after[name].config, **settings})
    return after


@given(
    there=st.sets(st.sampled_from(sorted(BY_DEFAULT))),
    partitions=st.integers(min_value=1, max_value=8),
    retention=st.sampled_from(["5", "-1", "259200000"]),
    asked=st.integers(min_value=1, max_value=8),
)
def test_applying_once_is_enough_and_never_shrinks(
    there: set[str], partitions: int, retention: str, asked: int
) -> None:
    """Whatever the cluster looks like: after the changes only refusals are left, nothing shrank."""
    found = {
        name: as_found(
            BY_DEFAULT[name],
            partitions=partitions,
            config={**BY_DEFAULT[name].config, "retention.ms": retention},
        )
        for name in there
    }
    wanted = wanted_topics("", Options(partitions=asked))
    first = plan(wanted, found)
    after = applied(found, first)
    second = plan(wanted, after)
    assert second.changes == ()
    assert all(holds(change, after) for change in first.changes)
    assert not any(holds(change, found) for change in first.changes)
    assert second.refusals == first.refusals
    assert all(after[name].partitions >= found[name].partitions for name in found)
    assert set(after) == set(BY_DEFAULT)
