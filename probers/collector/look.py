"""One look at all ranks of a host: processes, what they wrote, and sockets become records."""

import os
from pathlib import Path
from typing import Final

from probers.clock import Instant
from probers.collectives.core import Collector, DumpReading, Message
from probers.collectives.processes import JobRank, ProcessReading
from probers.collectives.sock_diag import DiagError
from probers.collectives.sockets import MAX_SOCKETS, OwnedSocket, RankKey, SocketHistory
from probers.collector.config import CollectConfig
from probers.collector.dumps import DumpFiles
from probers.collector.finder import RankFinder, Scan
from probers.collector.nccl_sources import NcclSources
from probers.collector.netlink import SocketTables
from probers.collector.procfs import ProcFs
from schemas.process.eventlog import EventLog
from schemas.records import RankSocket
from schemas.units import US_NS

NEEDED: Final = "needs root, or CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN"


class Looker:
    """Looks at the ranks of a host, again and again.

    Raises
    ------
    OSError, ValueError
        If there is no procfs where the settings say.
    """

    def __init__(self, config: CollectConfig, cluster: str, host_id: str, log: EventLog) -> None:
        self._config = config
        self._log = log
        self._procfs = ProcFs(Path(config.procfs))
        self._finder = RankFinder(
            self._procfs,
            task_id=config.task_id or None,
            only_task=config.only_task or None,
            dump_base=config.dumps or None,
            max_ranks=config.max_ranks,
        )
        self._dumps = DumpFiles()
        # Traffic of each rank as its ring tells it.
        self._flows: dict[RankKey, tuple[RankSocket, ...]] = {}
        self._tables = SocketTables()
        self._history = SocketHistory()
        # Sockets of each rank, by inode; read again when there is one that is nobody's.
        self._owned: dict[RankKey, set[int]] = {}
        self._foreign: dict[int, set[int]] = {}
        self._said: dict[tuple[str, RankKey | None], str] = {}
        self.collector = Collector(cluster, host_id)
        self._nccl = NcclSources(config, self._procfs, self.collector, self._say)
        self.scan = Scan()

    def look(self, now: Instant, *, patient: bool = False) -> list[Message]:
        """Return the records of one look.

        `patient`: it waits for NCCL's RAS, some seconds at most.
        """
        now_us = now.realtime_ns // US_NS
        self.scan = scan = self._finder.scan()
        self._say_trouble(scan)
        for key in self.collector.ranks:
            if key not in scan.ranks:
                self.collector.observe_end(key, now_us)
                self._dumps.forget(key)
                self._nccl.forget(key)
                self._owned.pop(key, None)
                self._said = {about: said for about, said in self._said.items() if about[1] != key}
        messages = []
        for key, (job, process) in scan.ranks.items():
            self.collector.observe_process(job, process)
            self.collector.observe_dump(key, self._dump(key, job, process, now.monotonic_ns))
        self._flows = self._nccl.look(scan.ranks, now, patient=patient)
        for key in self.collector.ranks:
            messages += self.collector.batches(key, now_us)
        if self._config.sockets:
            messages += self._sockets(scan, now)
        else:
            messages += [
                self.collector.sockets(
                    key, flows, "sockets are not read: [collect] sockets", now_us
                )
                for key, flows in self._flows.items()
            ]
        return messages

    def close(self) -> None:
        """Close what is open."""
        self._tables.close()

    def _dump(
        self, key: RankKey, job: JobRank, process: ProcessReading, now_ns: int
    ) -> DumpReading:
        base = job.dump_base
        if base is None:
            return DumpReading(missing_reason="neither its environment nor [collect] names dumps")
        if base != self._config.dumps:
            if not os.path.isabs(base):
                return DumpReading(missing_reason="its environment names dumps without a folder")
            root = self._procfs.root_of(process.pid)
            return self._dumps.look(key, f"{base}{job.rank}", now_ns=now_ns, root=root)
        return self._dumps.look(key, f"{base}{job.rank}", now_ns=now_ns)

    def _sockets(self, scan: Scan, now: Instant) -> list[Message]:
        now_us = now.realtime_ns // US_NS
        reasons: dict[RankKey, str] = {}
        namespaces: dict[int, dict[RankKey, int]] = {}
        for key, (_, process) in scan.ranks.items():
            try:
                namespace = self._procfs.namespace(process.pid)
                namespaces.setdefault(namespace, {})[key] = process.pid
            except OSError as error:
                reasons[key] = _reason("its network namespace", error)
        found: list[OwnedSocket] = []
        for namespace, ranks in namespaces.items():
            self._read_namespace(namespace, ranks, found, reasons)
        self._tables.keep(namespaces.keys())
        self._foreign = {n: held for n, held in self._foreign.items() if n in namespaces}
        held = self._history.observe(found, now.monotonic_ns)
        if reasons:
            self._say("sockets.unread", "; ".join(sorted(set(reasons.values()))))
        return [
            self.collector.sockets(key, self._with_flows(key, held), reasons.get(key), now_us)
            for key in scan.ranks
        ]

    def _with_flows(
        self, key: RankKey, held: dict[RankKey, tuple[RankSocket, ...]]
    ) -> tuple[RankSocket, ...]:
        """Return a rank's sockets and its traffic over channels, as many as a record takes."""
        return (held.get(key, ()) + self._flows.get(key, ()))[:MAX_SOCKETS]

    def _read_namespace(
        self,
        namespace: int,
        ranks: dict[RankKey, int],
        found: list[OwnedSocket],
        reasons: dict[RankKey, str],
    ) -> None:
        pid = next(iter(ranks.values()))
        try:
            readings = self._tables.read(namespace, self._procfs.namespace_path(pid))
        except OSError as error:
            reasons.update(dict.fromkeys(ranks, _reason("its network namespace", error)))
            return
        except DiagError as error:
            reasons.update(dict.fromkeys(ranks, str(error)))
            return
        there = {reading.inode for reading in readings}
        foreign = self._foreign.get(namespace, set()) & there
        known = foreign.union(*(self._owned.get(key, set()) for key in ranks))
        if there - known:
            for key, rank_pid in ranks.items():
                try:
                    self._owned[key] = self._procfs.socket_inodes(rank_pid)
                except OSError as error:
                    reasons[key] = _reason("its open files", error)
            owned = set().union(*(self._owned.get(key, set()) for key in ranks))
            foreign = there - owned
        self._foreign[namespace] = foreign
        owners = {inode: key for key in ranks for inode in self._owned.get(key, ())}
        found += [
            OwnedSocket(owners[reading.inode], namespace, reading)
            for reading in readings
            if reading.inode in owners
        ]

    def _say_trouble(self, scan: Scan) -> None:
        if scan.unreadable:
            self._say("processes.unreadable", f"some cannot be looked at: {NEEDED}")
        if scan.unused:
            self._say("ranks.unused", "; ".join(sorted(scan.unused)))
        if scan.left_out:
            self._say("ranks.left_out", f"{scan.left_out} beyond max_ranks")

    def _say(self, event: str, reason: str, key: RankKey | None = None) -> None:
        """Log a trouble, of a rank or of all, unless it is what was said of them last."""
        if self._said.get((event, key)) == reason:
            return
        self._said[event, key] = reason
        if key is None:
            self._log.warning(event, reason=reason)
        else:
            self._log.warning(event, reason=reason, task_id=key[0], rank=key[1])


def _reason(what: str, error: OSError) -> str:
    hint = f" ({NEEDED})" if isinstance(error, PermissionError) else ""
    return f"{what}: {error.strerror}{hint}"
