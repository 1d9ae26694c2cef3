"""Who says why a job hangs: the pipeline's faults, or `job diagnose` on the dumps alone."""

import time
from pathlib import Path
from typing import Final, Protocol

from localizer.collectives.diagnosis import HangClass, diagnose
from ops.bench.collectives.causes import Said
from ops.jobs.dumps import DumpsError, read_dumps
from ops.log.watch import Watch
from schemas.enums import FaultLifecycle
from schemas.ids import rank_key
from schemas.records import FaultEvent

LOOK_S: Final = 1.0
# A rank that is stopped or gone touches no file any more: its dump is then not read. Others say
# each half second that they live, or write a dump each six seconds.
STALE_S: Final = 8.0
# Dumps are not written at one instant: what they show once may be over in the next.
LOOKS: Final = 3


class Listener(Protocol):
    """Hears what is said of a job."""

    live: bool

    def forget(self) -> None:
        """Begin anew: what was said is of the past."""

    def hear(self) -> tuple[Said, ...]:
        """Return all that has been said since, each once, as it was said last."""

    def calm(self) -> bool:
        """Return whether nothing is wrong any more."""


class Dumps:
    """Diagnoses the dumps of the ranks, again and again; knows no cables."""

    live = False

    def __init__(self, folder: Path, world_size: int) -> None:
        self._folder = folder
        self._world_size = world_size
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._looked = 0.0
        self._same: list[tuple[Said, ...]] = []
        self._said: tuple[Said, ...] = ()

    def hear(self) -> tuple[Said, ...]:
        """Return what several looks have shown, one after another."""
        now = time.monotonic()
        if now >= self._looked + LOOK_S:
            self._looked = now
            self._same = [*self._same, self._look()][-LOOKS:]
            if len(self._same) == LOOKS and len(set(self._same)) == 1 and self._same[0]:
                self._said = self._same[0]
        return self._said

    def calm(self) -> bool:
        """Return whether the last look showed nothing."""
        self.hear()
        return not self._same or not self._same[-1]

    def _look(self) -> tuple[Said, ...]:
        try:
            found = read_dumps(self._folder)
        except DumpsError:
            return ()
        oldest_s = time.time() - STALE_S
        fresh = [s for s in found.snapshots if self._seen_s(s.rank) >= oldest_s]
        diagnosis = diagnose(fresh, world_size=self._world_size)
        said = [
            Said(finding.hang_class.value, finding.ranks)
            for finding in diagnosis.findings
            if finding.hang_class is not HangClass.USUAL_WAIT
        ]
        if not said and diagnosis.slow_rank is not None:
            said.append(Said("slow_rank", (diagnosis.slow_rank.rank,)))
        return tuple(said)

    def _seen_s(self, rank: int) -> float:
        """Return when a rank wrote last, seconds since the epoch."""
        names = (f"*rank_{rank}", f"*rank_{rank}.alive")
        files = [path for name in names for path in self._folder.glob(name)]
        return max((path.stat().st_mtime for path in files), default=0.0)


class Faults:
    """Reads the localizer's faults: the whole way, from ranks and agents to one verdict."""

    live = True

    def __init__(self, watch: Watch, task_id: str) -> None:
        self._watch = watch
        self._task_id = task_id
        self._open: set[str] = set()
        self._mine: dict[str, Said] = {}

    def forget(self) -> None:
        """Begin anew; faults that are open are of the past."""
        self._read()
        self._mine.clear()

    def hear(self) -> tuple[Said, ...]:
        """Return each fault that was opened since."""
        self._read()
        return tuple(self._mine.values())

    def calm(self) -> bool:
        """Return whether all faults are resolved."""
        self._read()
        return not self._open

    def _read(self) -> None:
        for seen in self._watch.poll(0.05):
            if isinstance(seen.record, FaultEvent):
                self.take(seen.record)

    def take(self, event: FaultEvent) -> None:
        """Take one transition of a fault, unless it is of another job of this machine."""
        if event.tasks and self._task_id not in event.tasks:
            return
        ranks = tuple(sorted(rank_key(rank)[1] for rank in event.ranks))
        said = Said(event.fault_kind, ranks, event.component_id)
        if event.state is FaultLifecycle.RESOLVED:
            self._open.discard(event.fault_id)
            return
        if event.fault_id not in self._open:
            self._open.add(event.fault_id)
            self._mine[event.fault_id] = said
        elif event.fault_id in self._mine:
            self._mine[event.fault_id] = said


def text(said: tuple[Said, ...]) -> str:
    """Return what was said for a line of progress."""
    return ", ".join(f"{one.name}: {_who(one)}" for one in said) or "nothing"


def _who(said: Said) -> str:
    return said.component_id or ", ".join(map(str, said.ranks)) or "nobody"
