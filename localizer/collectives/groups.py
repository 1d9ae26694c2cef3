"""Lays the records of all ranks beside each other, group by group and sequence by sequence.

Order comes from sequences alone: clocks of two hosts are never compared here.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from localizer.collectives.histories import by_sequence
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp, CollectiveSnapshot

# What PyTorch calls the group of all ranks.
WORLD: Final = "default_pg"
# Descriptions that say nothing.
UNDESCRIBED: Final = ("", "undefined")
# No rank can finish one of these before every rank has launched it. Others, such as a broadcast,
# are done for one that only sends.
SYNCHRONISING: Final = ("all_reduce", "allreduce", "all_gather", "_all_gather", "allgather",
                        "reduce_scatter", "_reduce_scatter", "all_to_all", "alltoall",
                        "barrier")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """A communicator, with what its ranks did on it.

    Attributes
    ----------
    members
        Ranks that surely belong to it, sorted.
    possible
        Ranks without a dump that may belong to it, where members are inferred.
    inferred
        Members are those that recorded operations, for no dump names them.
    operations
        Rank -> sequence -> operation, in order, without point-to-point operations.
    ends_alike
        Operations that failed are recorded as those that are done.
    launched, done
        Rank -> the last sequence that it launched, and up to which all was finished; None:
        nothing that is still recorded.
    """

    name: str
    description: str
    members: tuple[int, ...]
    possible: tuple[int, ...]
    inferred: bool
    ends_alike: bool
    operations: Mapping[int, Mapping[int, CollectiveOp]]
    launched: Mapping[int, int | None]
    done: Mapping[int, int | None]

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name if self.description in UNDESCRIBED else f"{self.name} ({self.description})"

    def first_unfinished(self, rank: int) -> int | None:
        """Return the first sequence that a rank launched and has not finished."""
        done, sequences = self.done[rank], list(self.operations[rank])
        place = 0 if done is None else bisect_right(sequences, done)
        return sequences[place] if place < len(sequences) else None


def is_synchronising(operation: str) -> bool:
    """Say whether no rank finishes such an operation before all have launched it."""
    return operation.startswith(SYNCHRONISING)


def is_finished(operation: CollectiveOp) -> bool:
    """Say whether a rank recorded the end of an operation.

    One that is retired and not completed has timed out, and is not finished.
    """
    return operation.state is CollectiveState.COMPLETED


def with_distinct_groups(snapshots: Sequence[CollectiveSnapshot]) -> list[CollectiveSnapshot]:
    """Return snapshots in which groups of different members have different names.

    Groups that are split off another one all bear one name.
    """
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for snapshot in snapshots:
        for view in snapshot.communicators:
            if view.ranks:
                members[view.communicator].add(view.ranks)
    ambiguous = {name for name, held in members.items() if len(held) > 1}
    if not ambiguous:
        return list(snapshots)
    found = []
    for snapshot in snapshots:
        names = {
            view.communicator: f"{view.communicator}@{min(view.ranks)}+{len(view.ranks)}"
            for view in snapshot.communicators
            if view.communicator in ambiguous and view.ranks
        }
        found.append(
            replace(
                snapshot,
                communicators=tuple(
                    replace(v, communicator=names.get(v.communicator, v.communicator))
                    for v in snapshot.communicators
                ),
                operations=tuple(
                    o._replace(communicator=names.get(o.communicator, o.communicator))
                    for o in snapshot.operations
                ),
            )
        )
    return found


def unseen_ranks(snapshots: Sequence[CollectiveSnapshot]) -> int:
    """Return how many ranks the job must have beyond the last one that is known.

    Groups of one description are usually of one size: what the smaller ones lack, beside ranks
    that are known and without a dump, are ranks that nothing names. One description alone may
    have groups of different sizes; two, such as of tensor and data parallelism, that lack as many
    have not.
    """
    recorded: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for snapshot in snapshots:
        for view in snapshot.communicators:
            if view.ranks is None and view.description not in {*UNDESCRIBED, WORLD}:
                recorded[view.description][view.communicator].add(snapshot.rank)
    known = {snapshot.rank for snapshot in snapshots}
    gaps = max(known, default=-1) + 1 - len(known)
    lacking = []
    for groups in recorded.values():
        largest = max(len(ranks) for ranks in groups.values())
        if len(groups) > 1:
            lacking.append(sum(largest - len(ranks) for ranks in groups.values()))
    agreed = len(lacking) > 1 and len(set(lacking)) == 1
    return max(0, lacking[0] - gaps) if agreed else 0


def came_equally_far(groups: Iterable[Group]) -> bool:
    """Say whether all ranks launched as many operations, as in a job that came to its end."""
    heads: dict[str, set[int]] = defaultdict(set)
    for group in groups:
        kind = group.name if group.description in UNDESCRIBED else group.description
        heads[kind] |= {head for head in group.launched.values() if head is not None}
    return all(len(held) <= 1 for held in heads.values())


def line_up(
    snapshots: Sequence[CollectiveSnapshot],
    ranks: Sequence[int],
    members: Mapping[str, Sequence[int]] | None = None,
) -> list[Group]:
    """Return the groups of a job, by name.

    Parameters
    ----------
    snapshots
        One of each rank that has one.
    ranks
        All ranks of the job.
    members
        Ranks by group, where they are known from elsewhere.
    """
    by_rank = {snapshot.rank: snapshot for snapshot in snapshots}
    absent = sorted(set(ranks) - set(by_rank))
    told: dict[str, set[int]] = {name: set(held) for name, held in (members or {}).items()}
    recorded: dict[str, dict[int, Mapping[int, CollectiveOp]]] = defaultdict(dict)
    descriptions: dict[str, str] = {}
    for rank, snapshot in sorted(by_rank.items()):
        for view in snapshot.communicators:
            if view.description not in UNDESCRIBED or view.communicator not in descriptions:
                descriptions[view.communicator] = view.description
            if view.ranks is not None and view.communicator not in (members or {}):
                told.setdefault(view.communicator, set()).update(view.ranks)
        for name, own in by_sequence(snapshot.operations).items():
            recorded[name][rank] = own
    for name, description in descriptions.items():
        if description == WORLD:
            told.setdefault(name, set(ranks))
    doubtful = {rank for rank, snapshot in by_rank.items() if snapshot.library == "gloo"}
    sure = {name: told.get(name, set()) | set(recorded[name]) for name in sorted(recorded)}
    # Made once: a large job has more than a thousand groups.
    present = set(by_rank)
    for name, held in sure.items():
        for rank in held & present:
            recorded[name].setdefault(rank, {})
    possible = _possible_members(sure, set(told), descriptions, absent)
    return [
        _group(
            name, sure[name], recorded[name], description=descriptions.get(name, ""),
            possible=possible[name], inferred=name not in told, doubtful=doubtful,
        )
        for name in sure
    ]  # fmt: skip


def _possible_members(
    sure: Mapping[str, set[int]],
    told: set[str],
    descriptions: Mapping[str, str],
    absent: Sequence[int],
) -> dict[str, tuple[int, ...]]:
    """Return which ranks without a dump may belong to which group.

    Groups of one description are usually of one size, and each rank is in one of them: one
    that is as large as the largest of them is whole.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for name in sure:
        if descriptions.get(name, "") not in UNDESCRIBED:
            alike[descriptions[name]].append(name)
    found = {}
    for name, members in sure.items():
        siblings = alike.get(descriptions.get(name, ""), [])
        whole = len(siblings) > 1 and len(members) == max(len(sure[s]) for s in siblings) > 1
        found[name] = () if name in told or whole else tuple(absent)
    return found


def _group(
    name: str,
    members: set[int],
    recorded: Mapping[int, Mapping[int, CollectiveOp]],
    *,
    description: str,
    possible: tuple[int, ...],
    inferred: bool,
    doubtful: Set[int],
) -> Group:
    present = sorted(recorded)
    operations = {rank: recorded[rank] for rank in present}
    sequences = {rank: list(operations[rank]) for rank in present}
    launched = {rank: held[-1] if held else None for rank, held in sequences.items()}
    heads = [head for head in launched.values() if head is not None]
    least = min(heads, default=None)
    done = {
        rank: _done(operations[rank], held, least if rank in doubtful else None)
        for rank, held in sequences.items()
    }
    return Group(
        name=name, description=description, members=tuple(sorted(members)), possible=possible,
        inferred=inferred, ends_alike=bool(doubtful & set(present)), operations=operations,
        launched=launched, done=done,
    )  # fmt: skip


def _done(
    operations: Mapping[int, CollectiveOp], sequences: Sequence[int], least: int | None
) -> int | None:
    """Return up to which sequence a rank has finished what it launched, of sorted sequences.

    gloo marks operations that failed as it marks those that are done. One that some rank has
    not launched cannot have been done.
    """
    for sequence in reversed(sequences):
        operation = operations[sequence]
        if is_finished(operation) and (
            least is None or sequence <= least or not is_synchronising(operation.operation)
        ):
            return sequence
    return None
