"""Compares a cluster's topics with what the registry says; pure. `ops.topics.admin` applies it.

A plan never shrinks: Kafka cannot take partitions away, and a topic is not made
anew behind its readers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from schemas.topics import (
    CREATE_TIME,
    DLQ_MAX_MESSAGE_BYTES,
    DLQ_RETENTION_NS,
    LOG_APPEND_TIME,
    MAX_MESSAGE_BYTES,
    TARGET,
    TOPICS,
    Topic,
)
from schemas.units import MS_NS

FOREVER_MS: Final = -1
DLQ_PARTITIONS: Final = 1
# A compacted topic keeps tombstones for this long, so that a reader which was
# away over a weekend still learns that an endpoint has left.
TOMBSTONE_RETENTION_MS: Final = 3 * 24 * 3_600 * 1000
# How many agents share a partition of a topic of which each reads one: an agent reads so many times
# its own part. With fewer there are more partitions, of which a broker bears some thousands.
AGENTS_A_PARTITION: Final = 16
# An agent that starts reads its partition from the beginning, with all that is not compacted yet. A
# segment that is written to is not: by default it is for a week, or up to 1 GiB.
PERSONAL_SEGMENT_MS: Final = 10 * 60 * 1000
# Tombstones of endpoints that no agent of a partition needs any more. An agent that was away
# for half as long reads its partition anew (`probers.lists.inbox.READ_ANEW_NS`).
TARGET_TOMBSTONE_MS: Final = 3_600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic as it should be, under its name on the broker."""

    name: str
    partitions: int
    config: Mapping[str, str]
    # Whether it may have more partitions: the contract does not know how many agents there are.
    at_least: bool = False

    @property
    def compacted(self) -> bool:
        """Whether the latest record of each key is kept."""
        return "compact" in self.config["cleanup.policy"].split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """A topic as it is; `config` holds the values that are in force."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a topic that is missing."""

    topic: WantedTopic

    def __str__(self) -> str:
        settings = " ".join(f"{k}={v}" for k, v in self.topic.config.items())
        return f"+ {self.topic.name}: {self.topic.partitions} partitions, {settings}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """Add partitions."""

    name: str
    found: int
    wanted: int

    def __str__(self) -> str:
        return (
            f"~ {self.name}: {self.found} -> {self.wanted} partitions "
            "(keys move to other partitions from then on)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """Change settings; `found` and `wanted` have the same keys."""

    name: str
    found: Mapping[str, str]
    wanted: Mapping[str, str]

    def __str__(self) -> str:
        changes = (f"{k}: {self.found[k]} -> {v}" for k, v in self.wanted.items())
        return f"~ {self.name}: {', '.join(changes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The topic has another number of partitions, and nothing is done about it."""

    name: str
    found: int
    wanted: int

    @property
    def reason(self) -> str:
        """Why not, and what else to do."""
        if self.found > self.wanted:
            return (
                f"Kafka cannot shrink a topic (ask for --partitions {self.found}, or delete the "
                "topic and lose its records)"
            )
        return (
            "it is compacted: a key whose partition changes would stand in two of them, and a "
            "tombstone would delete one only (delete the topic and have it written anew)"
        )

    def __str__(self) -> str:
        return (
            f"! {self.name}: {self.found} partitions, {self.wanted} wanted; refused: {self.reason}"
        )


Change = Create | Grow | Configure
Difference = Change | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How topics of this cluster differ from the registry.

    `replication_factor` None: 3, or as many as there are brokers. `partitions`
    sizes the topics whose load grows with the cluster: those that are not
    compacted and have more than one. `agents` sizes those of which each agent
    reads one partition. `keep_all` is for replays of old records: it
    switches off deletion by age, which would take them as soon as they come, and
    the broker keeps the recorded timestamps instead of setting its own.
    """

    replication_factor: int | None = None
    partitions: int | None = None
    agents: int | None = None
    keep_all: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Differences in the registry's order."""

    differences: tuple[Difference, ...] = field(default=())

    @property
    def changes(self) -> tuple[Change, ...]:
        """What `apply` would do."""
        return tuple(d for d in self.differences if not isinstance(d, Refuse))

    @property
    def refusals(self) -> tuple[Refuse, ...]:
        """What is wrong and stays wrong."""
        return tuple(d for d in self.differences if isinstance(d, Refuse))


def wanted_topics(
    prefix: str = "", options: Options | None = None, topics: Iterable[Topic] = TOPICS
) -> tuple[WantedTopic, ...]:
    """Return all topics of the contract, each followed by its dead-letter topic."""
    options = options or Options()
    wanted: list[WantedTopic] = []
    for topic in topics:
        wanted += [
            WantedTopic(
                name=prefix + topic.name,
                partitions=_partitions(topic, options),
                config=_config(topic, options),
                at_least=topic.personal and options.agents is None,
            ),
            WantedTopic(
                name=prefix + topic.dlq,
                partitions=DLQ_PARTITIONS,
                config=_dlq_config(options),
            ),
        ]
    return tuple(wanted)


def _partitions(topic: Topic, options: Options) -> int:
    if topic.personal:
        return max(topic.partitions, -(-(options.agents or 0) // AGENTS_A_PARTITION))
    # Topics with one partition have one for their order. Compacted ones are small, and
    # cannot grow later; they keep their number.
    if options.partitions is None or topic.partitions == 1 or topic.compacted:
        return topic.partitions
    return options.partitions


def _config(topic: Topic, options: Options) -> dict[str, str]:
    config = {
        "cleanup.policy": topic.cleanup,
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "message.timestamp.type": CREATE_TIME if options.keep_all else topic.timestamp_type,
    }
    if topic.compacted:
        config["delete.retention.ms"] = str(TOMBSTONE_RETENTION_MS)
    if topic.personal:
        config["segment.ms"] = str(PERSONAL_SEGMENT_MS)
        # As soon as a tenth of a partition is not compacted; by default, half of it.
        config["min.cleanable.dirty.ratio"] = "0.1"
    if topic is TARGET:
        config["delete.retention.ms"] = str(TARGET_TOMBSTONE_MS)
    if topic.retention_ns is not None:
        config["retention.ms"] = _retention(topic.retention_ns, options)
    return config


def _dlq_config(options: Options) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "max.message.bytes": str(DLQ_MAX_MESSAGE_BYTES),
        "message.timestamp.type": LOG_APPEND_TIME,
        "retention.ms": _retention(DLQ_RETENTION_NS, options),
    }


def _retention(retention_ns: int, options: Options) -> str:
    return str(FOREVER_MS if options.keep_all else retention_ns // MS_NS)


def plan(wanted: Iterable[WantedTopic], found: Mapping[str, FoundTopic]) -> Plan:
    """Return what tells the topics found from those wanted.

    Settings that we do not name are the operator's; they are left alone.
    """
    differences: list[Difference] = []
    for topic in wanted:
        there = found.get(topic.name)
        if there is None:
            differences.append(Create(topic=topic))
            continue
        if not _sized(there.partitions, topic):
            grows = there.partitions < topic.partitions and not topic.compacted
            kind = Grow if grows else Refuse
            differences.append(
                kind(name=topic.name, found=there.partitions, wanted=topic.partitions)
            )
        changed = {
            k: v for k, v in topic.config.items() if not _same(k, there.config.get(k, ""), v)
        }
        if changed:
            differences.append(
                Configure(
                    name=topic.name,
                    found={k: there.config.get(k, "") for k in changed},
                    wanted=changed,
                )
            )
    return Plan(tuple(differences))


def _sized(partitions: int, wanted: WantedTopic) -> bool:
    more = partitions > wanted.partitions and wanted.at_least
    return more or partitions == wanted.partitions


def holds(change: Change, found: Mapping[str, FoundTopic]) -> bool:
    """Return whether a change has been made."""
    match change:
        case Create(topic=topic):
            return topic.name in found
        case Grow(name=name, wanted=partitions):
            return name in found and found[name].partitions >= partitions
        case Configure(name=name, wanted=settings):
            there = found[name].config if name in found else {}
            return all(_same(k, there.get(k, ""), v) for k, v in settings.items())


def _same(key: str, a: str, b: str) -> bool:
    if key == "cleanup.policy":  # a set; brokers give it back in any order
        return set(a.split(",")) == set(b.split(","))
    return a == b
