"""Follows how far the ranks of a job came, of the jobs that somebody looks at, and of no others."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from ops.log.entry import Entry
from ops.log.reading import LogReader, Place, now_ms
from ops.log.timespan import Bound
from ops.view.job_ranks import (
    LOOKBACK_MS,
    RANK_LOGS,
    RANK_STATES,
    JobNow,
    may_be_of,
    prefix_of,
)
from ops.web.on_demand import OnDemand
from schemas.codec import Codec, DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import codec_for
from schemas.topics import Topic
from schemas.units import MS_NS

# Jobs that are read at once. One of 10,240 ranks takes half a core while somebody looks, and holds
# 60 MB.
MAX_JOBS: Final = 4
BATCH_S: Final = 0.25
NONE: Final = "none came yet: `skeletonhunter collect` on each host tells how far its ranks are"
FULL: Final = f"others look at {MAX_JOBS} jobs, as many as are read at once: try again later"
# Records before now that are read at most when somebody begins to look: of 10,000 ranks eight
# seconds, of a lab all. What waits is told again every 30 s.
MAX_BACK: Final = 40_000

# A record of a job, and when it reached the broker (ns).
Told = tuple[JobNow, object, int]


def decoded(codec: Codec, topic: Topic, entry: Entry, wanted: Iterable[JobNow]) -> list[Told]:
    """Return a record with the jobs that it may be of; one that cannot be used is counted."""
    if entry.value is None:
        return []
    jobs = [one for one in wanted if may_be_of(topic, entry.key, prefix_of(one.job.task_id))]
    if not jobs:
        return []
    arrived_ns = (entry.timestamp_ms or 0) * MS_NS
    try:
        record = codec.decode(topic, entry.value, arrival_ns=arrived_ns)
    except DecodeError:
        for job in jobs:
            job.undecodable += 1
        return []
    return [(job, record, arrived_ns) for job in jobs]


def fold(told: Iterable[Told]) -> None:
    """Apply records to their jobs; what cannot be used is counted."""
    for job, record, arrived_ns in told:
        try:
            job.apply(record, arrived_ns)
        except ValueError:
            job.undecodable += 1


class RankFollower(OnDemand):
    """A thread that reads ranks while somebody wants any.

    Parameters
    ----------
    settings
        Broker, prefix, registry.
    take
        Called in that thread with the jobs that are read, records to fold into them, and why there
        may be none.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        take: Callable[[Collection[JobNow], Iterable[Told], str | None], None],
    ) -> None:
        super().__init__(settings, "ranks", MAX_JOBS)
        self._topics = {settings.topic(one.name): one for one in (*RANK_STATES, *RANK_LOGS)}
        self._take = take

    def _say(self, why: str) -> None:
        self._take((), (), why)

    def _follow(self, reader: LogReader) -> None:
        codec = codec_for(self._settings)
        jobs: dict[str, JobNow] = {}
        # Up to where a job has been read: who came later makes all be read again.
        read: dict[str, dict[Place, int]] = {}
        while (wanted := self._goes_on()) is not None:
            if wanted - jobs.keys():
                self._look_back(reader)
            jobs = {name: jobs.get(name) or JobNow.of(name) for name in wanted}
            read = {name: read.get(name, {}) for name in wanted}
            told: list[Told] = []
            for place, entry in reader.batch(BATCH_S):
                new = [n for n in jobs if read[n].get(place, -1) < entry.offset]
                for name in new:
                    read[name][place] = entry.offset
                topic = self._topics[place[0]]
                told += decoded(codec, topic, entry, [jobs[n] for n in new])
            self._take(jobs.values(), told, reader.away or (FULL if self._full else NONE))
        # What nobody looks at is not held.
        self._take((), (), NONE)

    def _look_back(self, reader: LogReader) -> None:
        """Begin some time ago in what is a log, at the beginning of what is a state."""
        ranges = reader.partitions(list(self._topics))
        logs = {p: r for p, r in ranges.items() if self._topics[p[0]] in RANK_LOGS}
        starts = {place: r.low for place, r in ranges.items()}
        most = MAX_BACK // max(1, len(logs))
        for place, at in reader.offsets_at(logs, Bound("time", now_ms() - LOOKBACK_MS)).items():
            starts[place] = max(at, logs[place].high - most)
        reader.start(starts)
