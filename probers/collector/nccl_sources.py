"""What NCCL itself tells of ranks: the plugin's rings, the Inspector's logs, and RAS."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from probers.clock import Instant
from probers.collectives.core import Collector
from probers.collectives.nccl_ras import RasCounts, RasStatus, troubles
from probers.collectives.nccl_ring import RingError
from probers.collectives.processes import JobRank, ProcessReading
from probers.collectives.sockets import RankKey
from probers.collector.config import CollectConfig
from probers.collector.logs import InspectorLogs
from probers.collector.procfs import ProcFs
from probers.collector.ras import Place, RasAsker, every_ns
from probers.collector.rings import RingFiles
from schemas.enums import CollectiveSource
from schemas.records import RankSocket
from schemas.units import US_NS

Ranks = Mapping[RankKey, tuple[JobRank, ProcessReading]]
# Tells a trouble by its event and rank, unless it is what was told of them last.
Say = Callable[[str, str, RankKey], None]


class NcclSources:
    """Reads all of them at each look, and gives what they say to the collector's core."""

    def __init__(
        self, config: CollectConfig, procfs: ProcFs, collector: Collector, say: Say
    ) -> None:
        self._ras_s = config.ras_s
        self._procfs = procfs
        self._collector = collector
        self._say = say
        self._rings = RingFiles(procfs)
        self._logs = InspectorLogs(procfs)
        self._ras = RasAsker(procfs.own_namespace())
        self._counts: dict[RankKey, tuple[int, RasCounts]] = {}
        # Why RAS said nothing of a rank, until it does.
        self._silent: dict[RankKey, str] = {}

    def forget(self, key: RankKey) -> None:
        """Forget a rank that ended."""
        self._rings.forget(key)
        self._logs.forget(key)
        self._counts.pop(key, None)
        self._silent.pop(key, None)

    def look(
        self, ranks: Ranks, now: Instant, *, patient: bool
    ) -> dict[RankKey, tuple[RankSocket, ...]]:
        """Read all; return the traffic of the ranks that have a ring.

        Parameters
        ----------
        patient
            Whether to wait for RAS, as who looks once does.
        """
        now_us = now.realtime_ns // US_NS
        flows = {}
        for key, (job, process) in ranks.items():
            found = self._ring(key, job, process, now_us)
            if found is not None:
                flows[key] = found
            self._log(key, job, process, now_us)
        if self._ras_s:
            self._ask(ranks, now, patient=patient)
        for key, why in self._silent.items():
            self._collector.observe_no_ras(key, why)
        return flows

    def _ring(
        self, key: RankKey, job: JobRank, process: ProcessReading, now_us: int
    ) -> tuple[RankSocket, ...] | None:
        try:
            reading = self._rings.look(key, job, process, now_us=now_us)
        except RingError as error:
            self._collector.refuse(key, CollectiveSource.PROFILER, str(error))
            return None
        except (OSError, ValueError) as error:
            self._say("rings.unread", _reason(error), key)
            return None
        if reading is None:
            return None
        self._collector.counts.rings += 1
        if reading.lost:
            self._say("rings.lost", f"{reading.lost} events", key)
        self._collector.observe_operations(key, CollectiveSource.PROFILER, reading.dump, now_us)
        return reading.flows

    def _log(self, key: RankKey, job: JobRank, process: ProcessReading, now_us: int) -> None:
        try:
            reading = self._logs.look(key, job, process)
        except (OSError, ValueError) as error:
            self._say("inspector.unread", _reason(error), key)
            return
        if reading is None:
            return
        if reading.refused:
            self._say("inspector.refused", f"{reading.refused} lines: {reading.why}", key)
        if reading.left_out_bytes:
            self._say("inspector.left_out", f"{reading.left_out_bytes} bytes", key)
        self._collector.observe_operations(key, CollectiveSource.INSPECTOR, reading.dump, now_us)

    def _ask(self, ranks: Ranks, now: Instant, *, patient: bool) -> None:
        places: dict[Place, list[RankKey]] = defaultdict(list)
        paths: dict[Place, Path] = {}
        for key, (job, process) in ranks.items():
            if job.nccl.ras_address is None:
                self._silent[key] = "it is off, or not on the loopback"
                continue
            try:
                place = self._procfs.namespace(process.pid), job.nccl.ras_address
            except OSError as error:
                self._silent[key] = _reason(error)
                continue
            places[place].append(key)
            paths.setdefault(place, self._procfs.namespace_path(process.pid))
        self._ras.keep(places)
        rounds = 2 if patient else 1
        for turn in range(rounds):
            if turn:
                self._ras.wait()
            for place, keys in places.items():
                sizes = [ranks[key][0].world_size or 0 for key in keys]
                answer = self._ras.look(
                    place, paths[place], every_ns=every_ns(self._ras_s, max(sizes)),
                    now_ns=now.monotonic_ns,
                )  # fmt: skip
                if answer is not None:
                    self._answered(ranks, keys, answer.status, answer.why, now)

    def _answered(
        self, ranks: Ranks, keys: list[RankKey], status: RasStatus | None, why: str | None,
        now: Instant,
    ) -> None:  # fmt: skip
        if status is None:
            self._silent.update(dict.fromkeys(keys, why or "no answer"))
            return
        self._collector.counts.ras += 1
        found = troubles(status)
        if found:
            self._say("ras.troubles", "; ".join(found[:10]), keys[0])
        now_us = now.realtime_ns // US_NS
        for key in keys:
            job, process = ranks[key]
            held = self._counts.get(key)
            if held is None or held[0] != process.started_at:
                counts = RasCounts(job.rank, job.world_size)
                held = self._counts[key] = process.started_at, counts
            try:
                inner, _ = self._procfs.inner_pid(process.pid)
            except OSError as error:
                self._silent[key] = _reason(error)
                continue
            dump = held[1].take(status, pid=inner, asked_at=now_us)
            if dump is None:
                self._silent[key] = "it does not know this process, or several like it"
                continue
            self._silent.pop(key, None)
            self._collector.observe_operations(key, CollectiveSource.RAS, dump, now_us)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
