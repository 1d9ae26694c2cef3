"""Collects a snapshot of a cluster for the checks, without disturbing its consumers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ops.doctor.snapshot import Beat, Snapshot
from ops.log.decoding import SeenRecord, decode
from ops.log.entry import Entry
from ops.log.positions import GroupPositions
from ops.log.reading import LogReader, Place, Range, now_ms
from ops.log.timespan import Bound
from ops.topics.admin import TopicAdmin, TopicsRefusedError
from ops.topics.plan import Create, Options, plan, wanted_topics
from ops.view.cluster import ClusterView
from schemas import avro
from schemas import topics as t
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leader, role_group
from schemas.kafka.registry import Registry, RegistryError, codec_for
from schemas.records import Heartbeat
from schemas.topics import TOPICS, Topic
from schemas.units import US_PER_MS

# A batch waits this long for more; it counts as delay of the heartbeats in it.
LISTEN_POLL_S: Final = 0.02
# Older heartbeats say no more than that the agent is silent, which its registration says as well.
HEARTBEATS_MS: Final = 900_000
# Of anomaly.v1 so much is read back to find each partition's last PROGRESS, four a second.
ANOMALIES_BACK: Final = 500
# Roles of which one process leads, and whose partition it has.
LEADS: Final = {"localizer": t.FAULT_EVENT, "skeleton": t.SKELETON_TOPIC, "bridge": t.FAULT_EVENT}
STATE_TOPICS: Final = (t.ENDPOINT, t.PINGLIST, t.TASK, t.SKELETON_TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Consumer groups under which worker and localizer commit their positions."""

    worker: str
    localizer: str


class Collector:
    """Makes one snapshot.

    Parameters
    ----------
    settings
        Broker, prefix, registry.
    groups
        Whose positions to look up.
    listen_ms
        How long to wait for heartbeats that come in now.
    """

    def __init__(self, settings: KafkaSettings, groups: Groups, *, listen_ms: int = 2_500) -> None:
        self._settings = settings
        self._groups = groups
        self._listen_ms = listen_ms
        self._live: dict[str, Beat] = {}

    def snapshot(self) -> Snapshot:
        """Return what was found; a broker that does not answer is a finding."""
        try:
            with LogReader(self._settings) as reader:
                return self._snapshot(reader)
        except TopicsRefusedError as error:
            return Snapshot(now_ms=now_ms(), bootstrap=self._settings.bootstrap, refused=str(error))
        except ConnectionError as error:
            return Snapshot(
                now_ms=now_ms(), bootstrap=self._settings.bootstrap, unreachable=str(error)
            )

    def _snapshot(self, reader: LogReader) -> Snapshot:
        there = reader.topics()
        missing, differences = self._topics()
        registry_error, unregistered = self._registry()
        present = [topic for topic in TOPICS if self._settings.topic(topic.name) in there]
        dlqs = [t.dlq for t in present if self._settings.topic(t.dlq) in there]
        names = [*(t.name for t in present), *dlqs]
        ranges = reader.partitions([self._settings.topic(name) for name in names])
        # Without its registry no value can be read; what Kafka itself tells can.
        codec = None if registry_error is not None else codec_for(self._settings)
        view = ClusterView() if codec is None else self._read(reader, ranges, codec)
        return Snapshot(
            now_ms=now_ms(),
            bootstrap=self._settings.bootstrap,
            missing_topics=missing,
            topic_differences=differences,
            registry_url=self._settings.registry_url,
            registry_error=registry_error,
            unregistered=unregistered,
            heartbeats={agent: seen.beat.record for agent, seen in view.agents.items()},
            live=self._live,
            listened_ms=self._listen_ms,
            endpoints=view.endpoints,
            pinglists=view.pinglists,
            tasks=view.tasks,
            skeletons=view.skeletons,
            rounds_ms=view.rounds_ms,
            progress_ms={
                partition: mark.event_ms
                for partition, mark in view.progress.items()
                # A partition that never had input is idle at no time.
                if mark.event_ms > 0
            },
            worker_lag=self._lag(self._groups.worker, t.PROBE_ROUND, ranges),
            localizer_lag=self._lag(self._groups.localizer, t.ANOMALY, ranges),
            leaders=self._leaders(),
            dead_letters={
                name: count
                for name in dlqs
                if (count := sum(r.high - r.low for _, r in self._of(ranges, name)))
            },
            undecodable=dict(view.refused),
        )

    def _topics(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        wanted = wanted_topics(self._settings.topic_prefix, Options())
        found = plan(wanted, TopicAdmin(self._settings).found(w.name for w in wanted))
        missing = [d.topic.name for d in found.differences if isinstance(d, Create)]
        others = [str(d) for d in found.differences if not isinstance(d, Create)]
        return tuple(missing), tuple(others)

    def _registry(self) -> tuple[str | None, tuple[str, ...]]:
        s = self._settings
        if s.registry_url is None:
            return None, ()
        registry = Registry(s.registry_url, s.registry_user, s.registry_password)
        missing = []
        for topic in TOPICS:
            for version in avro.versions(topic.name):
                try:
                    registry.id_of(version)
                except RegistryError as error:
                    if "is not in the registry" not in str(error):
                        return str(error), ()
                    missing.append(f"{topic.name} version {version.version}")
        return None, tuple(missing)

    def _of(self, ranges: Mapping[Place, Range], name: str) -> list[tuple[Place, Range]]:
        full = self._settings.topic(name)
        return [(place, r) for place, r in ranges.items() if place[0] == full]

    def _read(self, reader: LogReader, ranges: Mapping[Place, Range], codec: Codec) -> ClusterView:
        view = ClusterView()
        starts: dict[Place, int] = {}
        for topic in STATE_TOPICS:
            starts |= {place: r.low for place, r in self._of(ranges, topic.name)}
        beats = dict(self._of(ranges, t.HEARTBEAT.name))
        since = Bound("time", now_ms() - HEARTBEATS_MS)
        starts |= reader.offsets_at(beats, since)
        starts |= {p: max(r.low, r.high - 1) for p, r in self._of(ranges, t.PROBE_ROUND.name)}
        back = ANOMALIES_BACK
        starts |= {p: max(r.low, r.high - back) for p, r in self._of(ranges, t.ANOMALY.name)}
        ends = {place: r.high for place, r in ranges.items()}
        for place, entry in reader.read_to(starts, ends):
            view.apply(self._decoded(place, entry, codec))
        self._listen(reader, {place: r.high for place, r in beats.items()}, codec, view)
        return view

    def _decoded(self, place: Place, entry: Entry, codec: Codec) -> SeenRecord:
        topic = t.BY_NAME[place[0].removeprefix(self._settings.topic_prefix)]
        return decode(topic, entry, codec)

    def _listen(
        self, reader: LogReader, starts: Mapping[Place, int], codec: Codec, view: ClusterView
    ) -> None:
        """Note what heartbeats come in now, and how long each was on its way."""
        reader.start(starts)
        caught_up: set[Place] = set()
        until_ms = now_ms() + self._listen_ms
        while (left_ms := until_ms - now_ms()) > 0:
            for place, entry in reader.batch(min(LISTEN_POLL_S, left_ms / 1_000)):
                seen = self._decoded(place, entry, codec)
                view.apply(seen)
                # What lay there before the first end was reached waited for us.
                if seen.record is None or place not in caught_up:
                    continue
                record: Heartbeat = seen.record
                delay_ms = now_ms() - record.sent_at // US_PER_MS
                beat = self._live.get(record.agent_id)
                known = frozenset() if beat is None else beat.incarnations
                least_ms = delay_ms if beat is None else min(delay_ms, beat.delay_ms, key=abs)
                self._live[record.agent_id] = Beat(
                    delay_ms=least_ms, incarnations=known | {record.incarnation}
                )
            caught_up |= reader.ended

    def _leaders(self) -> dict[str, Leader | None]:
        positions = GroupPositions(self._settings)
        return {
            role: positions.leader(
                role_group(self._settings, role), (self._settings.topic(topic.name), 0)
            )
            for role, topic in LEADS.items()
        }

    def _lag(
        self, group: str, topic: Topic, ranges: Mapping[Place, Range]
    ) -> dict[int, int | None]:
        places = dict(self._of(ranges, topic.name))
        if not places:
            return {}
        committed = GroupPositions(self._settings).committed(group, places)
        return {
            place[1]: None if at is None else max(0, places[place].high - at)
            for place, at in committed.items()
        }
