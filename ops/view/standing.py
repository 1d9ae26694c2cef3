"""Where a rank stands in each of its communicators, and for whom it waits there."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from localizer.collectives.groups import is_finished
from localizer.collectives.job_state import JobState
from localizer.collectives.rank_state import RankState
from schemas.records import CollectiveOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a rank came in a communicator.

    Attributes
    ----------
    launched, done
        Sequence of the last operation that it launched, and of the last that is finished; None:
        none is known. Transfers between two ranks count where there is nothing else.
    waits_in
        The first operation that is not finished; None: it waits for nothing there.
    waits_at
        Sequence of that one; None also of a transfer, which each rank counts for itself.
    waited_us
        How long it waits, by the rank's own clock, up to where its recorder was read last.
    """

    name: str
    launched: int
    done: int | None
    waits_in: str | None = None
    waits_at: int | None = None
    waited_us: int | None = None


def standings(state: RankState) -> Iterator[Standing]:
    """Yield how far a rank came in each communicator, by name, and what it waits for."""
    by_name: defaultdict[str, list[CollectiveOp]] = defaultdict(list)
    for operation in state.operations.records():
        by_name[operation.communicator].append(operation)
    at = state.batch.recorded_at
    for name, operations in sorted(by_name.items()):
        counted = [o for o in operations if not o.is_p2p] or operations
        done = [o.sequence for o in counted if is_finished(o)]
        waits = next((o for o in operations if not is_finished(o)), None)
        waited = None
        if waits is not None and waits.launched_at is not None and at is not None:
            waited = max(0, at - waits.launched_at)
        yield Standing(
            name=name,
            launched=max(o.sequence for o in counted),
            done=max(done, default=None),
            waits_in=None if waits is None else waits.operation,
            waits_at=None if waits is None or waits.is_p2p else waits.sequence,
            waited_us=waited,
        )


class Absent:
    """Who has not launched what others of a communicator wait in."""

    def __init__(self, job: JobState) -> None:
        self._members = {name: one.ranks for name, one in job.communicators.items()}
        self._launched: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for rank, state in job.ranks.items():
            for operation in state.operations.records():
                if not operation.is_p2p:
                    held = self._launched[operation.communicator]
                    held[rank] = max(operation.sequence, held.get(rank, -1))
        self._found: dict[tuple[str, int], tuple[int, ...]] = {}
        self._same: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, standing: Standing) -> tuple[int, ...] | None:
        """Return the ranks that are waited for, sorted; empty: all that are known launched it.

        None: it waits for nothing, or in a transfer, whose other end counts for itself. Equal
        answers are one object.
        """
        if standing.waits_at is None:
            return None
        place = standing.name, standing.waits_at
        if (known := self._found.get(place)) is None:
            launched = self._launched[standing.name]
            members = {*self._members.get(standing.name, ()), *launched}
            behind = (rank for rank in members if launched.get(rank, -1) < standing.waits_at)
            made = tuple(sorted(behind))
            known = self._found[place] = self._same.setdefault(made, made)
        return known
