"""Says where a hang of a training job begins, of what class it is, and how sure that is."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from localizer.collectives.ages import Age, age_of, idle_age
from localizer.collectives.groups import (
    UNDESCRIBED,
    Group,
    came_equally_far,
    line_up,
    unseen_ranks,
    with_distinct_groups,
)
from localizer.collectives.ranges import rank_text
from localizer.collectives.signatures import Aspect, Mismatch, describe, find_mismatch
from localizer.collectives.slow_ranks import SlowRank, find_slow_rank
from localizer.collectives.stacks import where_ranks_are
from localizer.collectives.transfers import (
    past_false_circles,
    transfers_in_doubt,
    unresolved_transfer,
    waits_of_pairs,
)
from localizer.collectives.waiting import (
    Edge,
    End,
    Place,
    Wait,
    circles_of,
    ends_of,
    past_mismatches,
    waits_of_gpus,
    waits_of_groups,
    waits_of_the_ended,
)
from schemas.enums import CollectiveState
from schemas.records import CollectiveSnapshot


class HangClass(StrEnum):
    """What a finding says."""

    NEVER_LAUNCHED = "never_launched"
    DESYNCHRONISED = "desynchronised"
    NOT_FINISHED = "not_finished"
    MISSING_DUMP = "missing_dump"
    USUAL_WAIT = "usual_wait"


class Certainty(StrEnum):
    """How sure a finding is. Nothing here is measured well enough for a probability."""

    SURE = "sure"
    LIKELY = "likely"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Where a hang begins.

    Attributes
    ----------
    ranks
        Where to look: of `never_launched` those that are behind, of `desynchronised` the odd
        ones, of `missing_dump` those without a dump. Empty where dumps do not tell.
    candidates
        What it may be, where that is undecided.
    group, sequence, operation
        In which the others wait.
    waiting
        Ranks that wait for it, directly or through others.
    unbegun
        Of an operation that all launched: those whose GPU has not come to it, while others' has.
    finished
        Of an operation that all launched: those that have finished it.
    circle
        Those that wait for each other, if any do.
    doubts
        What makes it less sure.
    stacks
        Where ranks launched their last operation, with these ranks.
    """

    hang_class: HangClass
    certainty: Certainty
    ranks: tuple[int, ...]
    candidates: tuple[str, ...]
    group: str
    sequence: int | None
    operation: str
    waiting: tuple[int, ...]
    age: Age
    evidence: tuple[str, ...]
    doubts: tuple[str, ...]
    next_steps: tuple[str, ...]
    stacks: tuple[tuple[str, tuple[int, ...]], ...] = ()
    finished: tuple[int, ...] = ()
    unbegun: tuple[int, ...] = ()
    circle: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the dumps of a job say.

    `findings` begins with what most ranks wait for. Without one, nothing in the dumps hangs, and
    `slow_rank` is the rank that the others wait for again and again, if there is one. Where no
    dump holds an operation, `recorded` is false: then nothing can be said.
    """

    ranks: tuple[int, ...]
    without_dump: tuple[int, ...]
    groups: tuple[Group, ...]
    findings: tuple[Finding, ...]
    slow_rank: SlowRank | None
    notes: tuple[str, ...]
    recorded: bool

    @property
    def hangs(self) -> bool:
        """Whether something hangs."""
        return any(f.hang_class is not HangClass.USUAL_WAIT for f in self.findings)


LOOK_AT_PROCESS: Final = (
    "py-spy dump --native --pid PID, or gdb -p PID, of rank {rank}'s process: what does it do?",
    "its log, and the host's dmesg: an exception, the OOM killer, an Xid of its GPU?",
)
UNFINISHED: Final[tuple[str, ...]] = (
    "the network between these ranks",
    "a process or thread of one of them that is stopped",
    "a GPU of one of them that does not go on",
)
DECIDES: Final[tuple[str, ...]] = (
    "per rank, twice within seconds: ss -tinp of the job's sockets, or the RNIC's counters. "
    "Bytes unacknowledged or retransmitted: network; bytes unread at one rank: its process; "
    "neither: GPU",
    "py-spy dump --native --pid PID on each of these ranks, nvidia-smi and dmesg on their hosts",
    "network faults on their hosts at that time, where agents run: skeletonhunter doctor",
)
COMPARE: Final = (
    "compare the code paths of these ranks before this operation: a condition that depends on "
    "the rank, a batch of another shape, an exception that was caught",
)


def diagnose(
    snapshots: Sequence[CollectiveSnapshot],
    *,
    world_size: int | None = None,
    members: Mapping[str, Sequence[int]] | None = None,
    untimely: Collection[int] = (),
    overdue: bool = False,
) -> Diagnosis:
    """Return what the snapshots of a job's ranks say.

    Parameters
    ----------
    snapshots
        One of each rank; in any order.
    world_size
        Ranks of the job, if known; else up to the largest rank that the snapshots name.
    members
        Ranks by group, where they are known from elsewhere.
    untimely
        Ranks whose dump may be of an earlier attempt, those whose dump was left out for that too.
    overdue
        Somebody has followed the job, and knows that ranks wait too long, and that all snapshots
        are younger than that: their own histories are not asked what is usual.
    """
    snapshots = with_distinct_groups(snapshots)
    by_rank = {s.rank: s for s in sorted(snapshots, key=lambda s: s.rank)}
    ranks, notes = _all_ranks(list(by_rank.values()), world_size, members)
    absent = tuple(rank for rank in ranks if rank not in by_rank)
    groups = {g.name: g for g in line_up(list(by_rank.values()), ranks, members)}
    mismatches = _mismatches(list(groups.values()))
    waits = waits_of_groups(groups.values(), mismatches)
    waits += waits_of_pairs(list(by_rank.values()), groups)
    if waits or mismatches or not came_equally_far(groups.values()):
        waits += waits_of_the_ended(list(by_rank.values()), groups, waits)
    graph = _graph(waits, by_rank, mismatches)
    if transfers_in_doubt(waits):
        waits = past_false_circles(waits, circles_of(graph), groups)
        graph = _graph(waits, by_rank, mismatches)
    explain = _Explainer(by_rank, groups, mismatches, frozenset(untimely), overdue=overdue)
    findings = explain.findings(ends_of(graph))
    named = {rank for finding in findings for rank in finding.ranks}
    if quiet := [rank for rank in absent if rank not in named]:
        why = "nothing points there" if not findings else "it may have ended because of the above"
        if any(group.ends_alike for group in groups.values()):
            why += "; with gloo an operation that failed is recorded as one that is done"
        notes.append(f"no dump of {rank_text(quiet)}: {why}")
    found = Diagnosis(
        tuple(ranks),
        absent,
        tuple(groups.values()),
        tuple(findings),
        None,
        tuple(notes),
        recorded=any(snapshot.operations for snapshot in snapshots),
    )
    if found.hangs or overdue:
        return found
    slow_rank = find_slow_rank(list(by_rank.values()), list(groups.values()))
    return replace(found, slow_rank=slow_rank)


def _graph(
    waits: Sequence[Edge],
    snapshots: Mapping[int, CollectiveSnapshot],
    mismatches: Mapping[str, Mismatch],
) -> list[Edge]:
    """Return the waits, those of GPUs as well, with what follows from a mismatch led on to it."""
    last = {r: s.operations[-1] if s.operations else None for r, s in snapshots.items()}
    gpus = waits_of_gpus(waits, snapshots.values(), mismatches)
    return past_mismatches([*waits, *gpus], mismatches, last)


def _all_ranks(
    snapshots: Sequence[CollectiveSnapshot],
    world_size: int | None,
    members: Mapping[str, Sequence[int]] | None,
) -> tuple[list[int], list[str]]:
    named = {s.rank for s in snapshots}
    named |= {r for s in snapshots for c in s.communicators for r in c.ranks or ()}
    named |= {r for held in (members or {}).values() for r in held}
    if world_size is not None:
        return sorted(named | set(range(world_size))), []
    if any(c.ranks for s in snapshots for c in s.communicators) or members:
        return sorted(named), []
    note = (
        "how many ranks the job has is not in these dumps: last ranks without a dump may not be "
        "missed (--world-size tells)"
    )
    if unseen := unseen_ranks(snapshots):
        note = (
            "how many ranks the job has is not in these dumps, and some groups are smaller than "
            "others of their description: counted as if the last ranks had left none "
            "(--world-size tells)"
        )
    return list(range(max(named, default=-1) + 1 + unseen)), [note]


def _mismatches(groups: Sequence[Group]) -> dict[str, Mismatch]:
    alike: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        alike[group.description].append(group)
    found = {}
    for group in groups:
        siblings = [] if group.description in UNDESCRIBED else alike[group.description]
        if (mismatch := find_mismatch(group, siblings)) is not None:
            found[group.name] = mismatch
    return found


class _Explainer:
    """Turns ends of the graph into findings."""

    def __init__(
        self,
        snapshots: Mapping[int, CollectiveSnapshot],
        groups: Mapping[str, Group],
        mismatches: Mapping[str, Mismatch],
        untimely: frozenset[int],
        *,
        overdue: bool,
    ) -> None:
        self._snapshots = dict(snapshots)
        self._groups = groups
        self._mismatches = mismatches
        self._untimely = untimely
        self._overdue = overdue

    def _is_usual(self, age: Age) -> bool:
        return age.is_usual and not self._overdue

    def findings(self, ends: Sequence[End]) -> list[Finding]:
        behind = [e for e in ends if self._is_rank(e, present=True)]
        missing = [e for e in ends if self._is_rank(e, present=False)]
        places = {w.place for end in behind for w in end.waits}
        # What waits for a rank that is behind needs no rank without a dump to explain it.
        unexplained = [e for e in missing if any(w.place not in places for w in e.waits)]
        hidden = sorted({n for e in missing for n in e.nodes if isinstance(n, int)})
        found = [self._never_launched(ends, hidden) for ends in _by_place(behind)]
        found += [self._missing(ends) for ends in _by_place(unexplained)]
        for end in ends:
            if len(end.nodes) > 1:
                found.append(self._circle(end))
            elif isinstance(end.nodes[0], Place):
                found.append(self._operation(end, end.nodes[0]))
        usual = HangClass.USUAL_WAIT
        return sorted(found, key=lambda f: (f.hang_class is usual, -len(f.waiting), f.ranks))

    def _is_rank(self, end: End, *, present: bool) -> bool:
        node = end.nodes[0]
        return (
            len(end.nodes) == 1 and isinstance(node, int) and (node in self._snapshots) == present
        )

    def _never_launched(self, ends: Sequence[End], hidden: Sequence[int]) -> Finding:
        ranks = tuple(sorted(n for end in ends for n in end.nodes if isinstance(n, int)))
        waits = [w for end in ends for w in end.waits]
        age = age_of(waits, self._snapshots)
        idle = [idle_age(self._snapshots[rank]) for rank in ranks]
        # One that is surely behind in one operation is, whatever of others is not known.
        surely = {wait.target for wait in waits if wait.sure}
        doubts = self._doubts_of([wait for wait in waits if wait.target not in surely], age)
        evidence = []
        for rank in ranks[:8]:
            group = self._groups[next(w.place.group for w in waits if w.target == rank)]
            evidence.append(self._last_of(rank, group))
            snapshot = self._snapshots[rank]
            if group.launched.get(rank) is None and snapshot.dropped_before:
                # 1 may only mark that some were.
                lost = snapshot.dropped_before
                some = "some operations" if lost == 1 else f"{lost:,} operations or more"
                doubts.append(
                    f"of rank {rank} {some} were lost, and what is left holds none of this group"
                )
            if (transfer := unresolved_transfer(snapshot, self._groups)) is not None:
                label = self._groups[transfer.communicator].label
                doubts.append(
                    f"rank {rank} itself waits in {transfer.operation} {transfer.sequence} of "
                    f"group {label}: for which rank is not recorded (--groups tells)"
                )
        if hidden:
            doubts.append(f"no dump of {rank_text(hidden)}: whether it launched this is not known")
        # One that launched something just now goes on: its dump is only older than the others'.
        usual = self._is_usual(age) or (not age.timed_out and all(self._is_usual(i) for i in idle))
        return self._finding(
            ends,
            age,
            hang_class=HangClass.USUAL_WAIT if usual else HangClass.NEVER_LAUNCHED,
            certainty=Certainty.LIKELY if doubts or usual else Certainty.SURE,
            ranks=ranks,
            evidence=evidence,
            doubts=doubts,
            next_steps=tuple(step.format(rank=ranks[0]) for step in LOOK_AT_PROCESS),
        )

    def _missing(self, ends: Sequence[End]) -> Finding:
        ranks = tuple(sorted(n for end in ends for n in end.nodes if isinstance(n, int)))
        waits = [w for end in ends for w in end.waits]
        doubts = [
            f"{rank_text(ranks)} left no dump that can be used: what it launched is not known, and "
            "the dump may be lost for another reason"
        ]
        age = age_of(waits, self._snapshots)
        evidence = [
            "a rank that fails first ends before it writes a dump, or is stopped and cannot"
        ]
        if age.waited is None and not age.timed_out:
            doubts.append("how long the others have waited is not known")
        return self._finding(
            ends,
            age,
            hang_class=HangClass.USUAL_WAIT if self._is_usual(age) else HangClass.MISSING_DUMP,
            certainty=Certainty.LIKELY if len(ranks) == 1 else Certainty.UNDECIDED,
            ranks=ranks,
            evidence=evidence,
            doubts=doubts,
            next_steps=tuple(step.format(rank=ranks[0]) for step in LOOK_AT_PROCESS),
        )

    def _operation(self, end: End, place: Place) -> Finding:
        mismatch = self._mismatches.get(place.group)
        if mismatch is not None and mismatch.sequence == place.sequence and place.sender is None:
            return self._desynchronised(end, mismatch)
        if place.sender is not None:
            return self._transfer(end, place)
        group = self._groups[place.group]
        age = age_of(end.waits, self._snapshots)
        states = {
            rank: held[place.sequence].state
            for rank, held in group.operations.items()
            if place.sequence in held
        }
        done = {rank: head for rank, head in group.done.items() if head is not None}
        finished = [r for r in states if r in done and done[r] >= place.sequence]
        begun = [r for r, state in states.items() if state is CollectiveState.STARTED]
        rest = [r for r in states if r not in begun and r not in finished]
        evidence = [f"all {len(states)} ranks of the group launched it, and their sizes fit"]
        if finished:
            evidence.append(
                f"finished on {rank_text(finished)}, not on {rank_text(sorted({*begun, *rest}))}"
            )
        candidates: tuple[str, ...] = UNFINISHED
        if begun and rest:
            evidence.append(
                f"it began on the GPU of {rank_text(begun)}, and not on that of {rank_text(rest)}"
            )
            candidates = (
                f"work before it on the GPU of {rank_text(rest)} that does not end", *UNFINISHED
            )  # fmt: skip
        doubts = self._doubts_of(end.waits, age)
        if group.inferred:
            doubts.append(
                "the group's members are inferred from who recorded operations: one that never "
                "launched any is not seen (--groups tells)"
            )
        return self._finding(
            (end,),
            age,
            hang_class=HangClass.USUAL_WAIT if self._is_usual(age) else HangClass.NOT_FINISHED,
            certainty=Certainty.UNDECIDED,
            evidence=evidence,
            doubts=doubts,
            next_steps=DECIDES,
            candidates=candidates,
            unbegun=tuple(rest) if begun else (),
            finished=tuple(finished),
        )

    def _transfer(self, end: End, place: Place) -> Finding:
        age = age_of(end.waits, self._snapshots)
        sizes = {
            wait.waiter: wait.operation.n_bytes
            for wait in end.waits
            if wait.waiter in {place.sender, place.receiver}
        }
        evidence = [
            f"rank {place.sender} sends to rank {place.receiver}, which receives: both launched"
        ]
        if done := [r for r in (place.sender, place.receiver) if r is not None and r not in sizes]:
            evidence.append(f"finished on {rank_text(done)}")
        begun = {w.waiter: w.operation.started_at is not None for w in end.waits}
        unbegun = tuple(r for r, has in sorted(begun.items()) if not has and any(begun.values()))
        hang_class, next_steps = HangClass.NOT_FINISHED, DECIDES
        candidates: tuple[str, ...] = UNFINISHED
        if None not in sizes.values() and len(set(sizes.values())) > 1:
            said = ", ".join(f"rank {rank} {size} bytes" for rank, size in sorted(sizes.items()))
            evidence.append(f"their sizes differ: {said}")
            hang_class = HangClass.DESYNCHRONISED
            candidates = tuple(f"rank {rank}" for rank in sorted(sizes))
            next_steps = ("compare the two calls in the program",)
        return self._finding(
            (end,),
            age,
            hang_class=HangClass.USUAL_WAIT if self._is_usual(age) else hang_class,
            certainty=Certainty.UNDECIDED,
            evidence=evidence,
            doubts=self._doubts_of(end.waits, age),
            next_steps=next_steps,
            candidates=candidates,
            unbegun=unbegun if hang_class is HangClass.NOT_FINISHED else (),
        )

    def _desynchronised(self, end: End, mismatch: Mismatch) -> Finding:
        age = age_of(end.waits, self._snapshots)
        said: dict[str, list[int]] = defaultdict(list)
        for rank, text in mismatch.said.items():
            said[text].append(rank)
        evidence = [f"{rank_text(held)}: {text}" for text, held in said.items()]
        evidence.append(mismatch.how)
        doubts, candidates = [], tuple[str, ...]()
        certainty = Certainty.UNDECIDED
        if mismatch.odd:
            certainty = Certainty.SURE if mismatch.doubt is None else Certainty.LIKELY
        if mismatch.doubt is not None:
            doubts.append(mismatch.doubt)
        if mismatch.shifted:
            evidence.append(f"{rank_text(mismatch.odd)}: {mismatch.shifted}")
        if mismatch.pair is not None:
            evidence.append(
                f"the pair that disagrees: rank {mismatch.pair[0]} → rank {mismatch.pair[1]}"
            )
        if not mismatch.odd:
            candidates = tuple(f"rank {rank}" for rank in sorted(mismatch.said))
        if mismatch.aspect is Aspect.SPLITS and mismatch.pair is None:
            doubts.append(
                "the splits of each pair are not recorded, and unequal ones that fit are no fault"
            )
            if not mismatch.beside:
                evidence.append("what is sent and what is expected differ in sum")
            certainty = Certainty.LIKELY if mismatch.odd else Certainty.UNDECIDED
        group = mismatch.group
        if absent := sorted({*group.members, *group.possible} - set(mismatch.said)):
            if mismatch.beside:
                certainty = Certainty.LIKELY
            doubts.append(f"what {rank_text(absent)} did at this sequence is not recorded")
        return self._finding(
            (end,),
            age,
            hang_class=HangClass.DESYNCHRONISED,
            certainty=certainty,
            ranks=mismatch.odd,
            evidence=evidence,
            doubts=doubts,
            next_steps=COMPARE,
            candidates=candidates,
        )

    def _circle(self, end: End) -> Finding:
        ranks = tuple(n for n in end.nodes if isinstance(n, int))
        evidence = [
            f"rank {wait.waiter} waits in {self._place(wait)} for rank {wait.target}"
            for wait in end.waits
            if wait.target in ranks and wait.waiter in ranks
        ]
        age = age_of(end.waits, self._snapshots)
        return self._finding(
            (end,),
            age,
            hang_class=HangClass.USUAL_WAIT if self._is_usual(age) else HangClass.DESYNCHRONISED,
            certainty=Certainty.UNDECIDED,
            evidence=evidence[:12],
            doubts=self._doubts_of(end.waits, age),
            next_steps=(
                "these ranks launch operations of several groups in different orders: compare them",
            ),
            candidates=tuple(f"rank {rank}" for rank in ranks),
            circle=ranks,
        )

    def _finding(
        self,
        ends: Sequence[End],
        age: Age,
        *,
        hang_class: HangClass,
        certainty: Certainty,
        evidence: Sequence[str],
        doubts: Sequence[str],
        next_steps: tuple[str, ...],
        ranks: tuple[int, ...] = (),
        candidates: tuple[str, ...] = (),
        unbegun: tuple[int, ...] = (),
        finished: tuple[int, ...] = (),
        circle: tuple[int, ...] = (),
    ) -> Finding:
        waits = [wait for end in ends for wait in end.waits]
        if early := [rank for rank in ranks if rank in self._untimely]:
            if early[0] in self._snapshots:
                why = "may be of an earlier attempt: its last launch was long before the others"
            else:
                why = "was left out as one of an earlier attempt"
            doubts = [*doubts, f"the dump of {rank_text(early)} {why}"]
            certainty = Certainty.LIKELY if certainty is Certainty.SURE else certainty
        node = ends[0].nodes[0]
        at = [wait for wait in waits if wait.place == node] or waits
        first = min(at, key=lambda w: (w.place.sequence, w.place.group, w.waiter))
        # Ranks that are behind in one place share one tuple of those that wait for them.
        different = {id(end.waiters): end.waiters for end in ends}.values()
        waiting = tuple(sorted({r for held in different for r in held} - set(ranks)))
        if hang_class is HangClass.USUAL_WAIT:
            next_steps = ("dump again in a while: a hang stays where it is",)
        group = self._groups[first.place.group]
        sequence = first.place.sequence if first.place.sender is None else first.operation.sequence
        shown = {*waiting, *ranks} & set(self._snapshots)
        return Finding(
            hang_class=hang_class, certainty=certainty, ranks=ranks, candidates=candidates,
            group=group.label, sequence=sequence, operation=describe(first.operation),
            waiting=waiting, age=age, evidence=tuple(evidence), doubts=tuple(doubts),
            next_steps=next_steps,
            stacks=where_ranks_are([self._snapshots[r] for r in sorted(shown)]), unbegun=unbegun,
            finished=finished, circle=circle,
        )  # fmt: skip

    def _doubts_of(self, waits: Sequence[Wait], age: Age) -> list[str]:
        found = []
        if age.waited is not None and age.longest_before is None and not age.timed_out:
            found.append("nothing before tells how long they usually wait")
        if age.waited is None and not age.timed_out:
            found.append("how long they have waited is not known: a job that runs looks alike")
        if any(not wait.sure for wait in waits):
            found.append("whether all ranks that may take part launched it is not recorded")
        return found

    def _last_of(self, rank: int, group: Group) -> str:
        head = group.launched.get(rank)
        at = "no collective operation that is recorded" if head is None else f"up to {head}"
        snapshot = self._snapshots[rank]
        text = f"rank {rank} launched {at} of group {group.label}"
        if not snapshot.operations:
            return f"{text}, and nothing else"
        last = snapshot.operations[-1]
        label = self._groups[last.communicator].label
        return f"{text}; its last was {describe(last)}, {last.sequence} of group {label}"

    def _place(self, wait: Wait) -> str:
        group = self._groups[wait.place.group].label
        return f"{wait.operation.operation} {wait.operation.sequence} of group {group}"


def _by_place(ends: Sequence[End]) -> list[list[End]]:
    """Put ends together that the same operations wait for."""
    found: list[tuple[set[Place], list[End]]] = []
    for end in ends:
        places = {wait.place for wait in end.waits}
        joined = [entry for entry in found if entry[0] & places]
        for entry in joined:
            found.remove(entry)
            places |= entry[0]
        found.append((places, [e for entry in joined for e in entry[1]] + [end]))
    return [together for _, together in found]
