"""The graph of who waits for whom, over all groups of a job, and what it ends at.

A rank waits for those that have not launched an operation that it has. What waits for nothing
itself is where a hang begins: a rank, an operation that all have launched, or ranks that wait
for each other in a circle.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from localizer.collectives.groups import Group, is_synchronising
from localizer.collectives.histories import is_timed
from localizer.collectives.signatures import Mismatch
from schemas.records import CollectiveOp, CollectiveSnapshot


@dataclass(frozen=True, slots=True)
class Place:
    """An operation: of a group at a sequence, or from one rank to another."""

    group: str
    sequence: int
    sender: int | None = None
    receiver: int | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """All ranks of a group that are behind a sequence: many wait for many there.

    Between the two it stands for an edge of each to each.
    """

    group: str
    sequence: int


Node = int | Place | Gate


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank waits for another, or for an operation that all have launched.

    `sure` is false where it is not recorded whether the other takes part, or has launched it.
    """

    waiter: int
    target: Node
    place: Place
    operation: CollectiveOp
    sure: bool

    @property
    def source(self) -> Node:
        """Where the edge begins."""
        return self.waiter


@dataclass(frozen=True, slots=True)
class Opening:
    """What those at a gate or at an operation that all launched wait for; `sure` as there."""

    source: Gate | Place
    target: Node
    sure: bool


Edge = Wait | Opening


@dataclass(frozen=True, slots=True)
class End:
    """What waits for nothing itself, and the ranks that wait for it, directly or not."""

    nodes: tuple[Node, ...]
    waiters: tuple[int, ...]
    waits: tuple[Wait, ...]


def waits_of_groups(groups: Iterable[Group], mismatches: Mapping[str, Mismatch]) -> list[Edge]:
    """Return who waits for whom in collective operations."""
    found: list[Edge] = []
    for group in groups:
        at: dict[int, list[tuple[int, CollectiveOp]]] = defaultdict(list)
        for rank in group.operations:
            sequence = group.first_unfinished(rank)
            if sequence is not None:
                at[sequence].append((rank, group.operations[rank][sequence]))
        mismatch = mismatches.get(group.name)
        for sequence, waiting in at.items():
            if mismatch is not None and mismatch.sequence <= sequence:
                # Whatever the ranks did after they disagreed follows from that.
                place = Place(group.name, mismatch.sequence)
                found += [Wait(rank, place, place, o, sure=True) for rank, o in waiting]
            else:
                found += _waits_at(group, sequence, waiting)
    return found


def _waits_at(
    group: Group, sequence: int, waiting: Sequence[tuple[int, CollectiveOp]]
) -> Iterator[Edge]:
    """Yield who is waited for by the ranks that wait at a sequence of a group."""
    place = Place(group.name, sequence)
    targets = [(r, True) for r, head in group.launched.items() if head is None or head < sequence]
    unknown = {*group.members, *group.possible} - set(group.operations)
    targets += [(rank, False) for rank in sorted(unknown)]
    if not targets:
        for rank, operation in waiting:
            yield Wait(rank, place, place, operation, sure=True)
    elif len(targets) == 1 or len(waiting) == 1:
        for rank, operation in waiting:
            for target, sure in targets:
                yield Wait(rank, target, place, operation, sure=sure)
    else:
        gate = Gate(group.name, sequence)
        for rank, operation in waiting:
            yield Wait(rank, gate, place, operation, sure=True)
        for target, sure in targets:
            yield Opening(gate, target, sure=sure)


def waits_of_gpus(
    waits: Iterable[Edge],
    snapshots: Iterable[CollectiveSnapshot],
    mismatches: Mapping[str, Mismatch],
) -> list[Opening]:
    """Return which operations that all have launched wait for a rank's GPU to come to them.

    A program that does not wait launches far ahead, and then all have launched all: what a GPU has
    not begun waits for what it does before. Only where the recorder has times of beginnings; a send
    holds nothing up.
    """
    timed = {s.rank for s in snapshots if is_timed(s.operations)}
    held = [wait for wait in waits if isinstance(wait, Wait)]
    oldest: dict[int, int] = {}
    for wait in held:
        if not (wait.operation.is_p2p and wait.operation.operation.startswith("send")):
            before = oldest.get(wait.waiter, wait.operation.record_id)
            oldest[wait.waiter] = min(before, wait.operation.record_id)
    found = []
    for wait in held:
        place = wait.target
        if not isinstance(place, Place):
            continue
        mismatch = mismatches.get(place.group) if place.sender is None else None
        if mismatch is not None and mismatch.sequence == place.sequence:
            continue
        begun = wait.operation.started_at is not None or wait.waiter not in timed
        if not begun and oldest.get(wait.waiter, wait.operation.record_id) < (
            wait.operation.record_id
        ):
            found.append(Opening(place, wait.waiter, sure=wait.sure))
    return found


def waits_of_the_ended(
    snapshots: Sequence[CollectiveSnapshot], groups: Mapping[str, Group], waits: Sequence[Edge]
) -> list[Wait]:
    """Return for ranks with nothing unfinished what their last operation may have failed at.

    gloo marks a failed operation as it marks one that is done. Where a rank that may have taken
    part left no dump, the rank behind it may only follow from that.
    """
    waiting = {wait.source for wait in waits}
    found = []
    for snapshot in snapshots:
        if snapshot.rank in waiting or not snapshot.operations or snapshot.library != "gloo":
            continue
        last = snapshot.operations[-1]
        group = groups.get(last.communicator)
        if group is None or last.is_p2p or not is_synchronising(last.operation):
            continue
        for other in sorted({*group.members, *group.possible} - set(group.operations)):
            place = Place(group.name, last.sequence)
            found.append(Wait(snapshot.rank, other, place, last, sure=False))
    return found


def past_mismatches(
    waits: Sequence[Edge],
    mismatches: Mapping[str, Mismatch],
    last: Mapping[int, CollectiveOp | None],
) -> list[Edge]:
    """Lead what waits for a rank that a mismatch held up on to the mismatch.

    Ranks that do different things bring others down, and themselves: one that left no dump and
    may belong to the group, or that launched nothing after it, is gone for that reason.

    `last` is the last operation of each rank that has a dump.
    """
    led: dict[Node, Node] = {}
    # Made once: of a large job there are as many targets as ranks.
    ranks = {name: {*m.group.members, *m.group.possible} for name, m in mismatches.items()}
    for target in {wait.target for wait in waits} if mismatches else ():
        if isinstance(target, int):
            held_up = (
                mismatch
                for name, mismatch in mismatches.items()
                if _is_held_up(target, mismatch, ranks[name], last)
            )
            if (mismatch := next(held_up, None)) is not None:
                led[target] = Place(mismatch.group.name, mismatch.sequence)
    found: list[Edge] = [replace(w, target=led[w.target]) if w.target in led else w for w in waits]
    reached = {wait.target for wait in found}
    for mismatch in mismatches.values():
        place = Place(mismatch.group.name, mismatch.sequence)
        if place not in reached:
            # All its ranks have ended, and nobody waits: it is told all the same.
            for rank in mismatch.said:
                held = mismatch.group.operations[rank]
                if mismatch.sequence in held:
                    found.append(Wait(rank, place, place, held[mismatch.sequence], sure=True))
    return found


def _is_held_up(
    rank: int, mismatch: Mismatch, ranks: Set[int], last: Mapping[int, CollectiveOp | None]
) -> bool:
    """Return whether a mismatch held a rank up; `ranks` are those that may belong to its group."""
    group = mismatch.group
    if rank not in last:
        return rank in ranks
    if (operation := last[rank]) is None:
        return False
    inside = operation.communicator == group.name and not operation.is_p2p
    return inside and operation.sequence >= mismatch.sequence


def ends_of(waits: Sequence[Edge]) -> list[End]:
    """Return where the waiting ends, that for which most ranks wait first."""
    after = _after(waits)
    component = _components(after)
    members: dict[int, list[Node]] = defaultdict(list)
    for node, number in component.items():
        members[number].append(node)
    before: dict[Node, set[Node]] = defaultdict(set)
    for node, others in after.items():
        for other in others:
            before[other].add(node)
    parts: dict[int, list[Edge]] = defaultdict(list)
    for wait in waits:
        parts[component[wait.target]].append(wait)
    waiting_at = _waiting_at(waits)
    # Ranks that are behind in one place have the same ranks before them, and one set serves.
    known: dict[frozenset[Node], tuple[int, ...]] = {}
    told: set[Gate | Place] = set()
    found = []
    for number, nodes in members.items():
        leaves = any(component[n] != number for node in nodes for n in after[node])
        if leaves:
            continue
        inside = set(nodes)
        directly = frozenset(n for node in nodes for n in before[node])
        waiters = known.get(directly)
        if waiters is None:
            waiters = known[directly] = tuple(sorted(_reached(directly, before)))
        part = tuple(_opened(parts[number], waiting_at, inside, told))
        ordered = tuple(sorted((n for n in nodes if not isinstance(n, Gate)), key=_order))
        found.append(End(ordered, waiters, part))
    return sorted(found, key=lambda end: (-len(end.waiters), [_order(n) for n in end.nodes]))


def circles_of(waits: Iterable[Edge]) -> dict[Node, int]:
    """Return for what waits for itself, through others, a number for all of its circle."""
    component = _components(_after(waits))
    size = Counter(component.values())
    return {node: number for node, number in component.items() if size[number] > 1}


def _after(waits: Iterable[Edge]) -> dict[Node, dict[Node, None]]:
    """Return what each node waits for, in the order of the waits.

    A set has another order in each process, and of ranks behind one gate the first is told with all
    that wait there.
    """
    after: dict[Node, dict[Node, None]] = defaultdict(dict)
    for wait in waits:
        after[wait.source][wait.target] = None
        after.setdefault(wait.target, {})
    return after


def _waiting_at(waits: Iterable[Edge]) -> dict[Gate | Place, list[Wait]]:
    """Return by gate, and by operation that all have launched, who waits there."""
    found: dict[Gate | Place, list[Wait]] = defaultdict(list)
    for wait in waits:
        if isinstance(wait, Wait) and isinstance(wait.target, Gate | Place):
            found[wait.target].append(wait)
    return found


def _opened(
    waits: Iterable[Edge],
    waiting_at: Mapping[Gate | Place, Sequence[Wait]],
    inside: Set[Node],
    told: set[Gate | Place],
) -> Iterator[Wait]:
    """Yield the waits for an end by ranks, those through a gate as well.

    Of ranks that are behind at one gate the first has all that wait there, the others the first of
    them: whoever waits for one waits for all.
    """
    for wait in waits:
        if isinstance(wait, Wait):
            # What leads to a gate within a circle is told by what comes out of the gate.
            if not isinstance(wait.target, Gate):
                yield wait
            continue
        gate = wait.source
        circle = gate in inside
        held = waiting_at[gate] if circle or gate not in told else waiting_at[gate][:1]
        told.add(gate)
        for first in held:
            yield replace(first, target=wait.target, sure=wait.sure)


def _order(node: Node) -> tuple[object, ...]:
    if isinstance(node, int):
        return (0, node, "", 0)
    return (1, node.sequence, node.group, node.sender or 0 if isinstance(node, Place) else 0)


def _reached(nodes: Iterable[Node], edges: Mapping[Node, set[Node]]) -> set[int]:
    """Return the ranks among some nodes and what can be reached from them."""
    reached = set(nodes)
    waiting = list(reached)
    while waiting:
        for node in edges.get(waiting.pop(), set()) - reached:
            reached.add(node)
            waiting.append(node)
    return {n for n in reached if isinstance(n, int)}


def _components(after: Mapping[Node, Iterable[Node]]) -> dict[Node, int]:
    """Return the strongly connected component of each node (Tarjan, without recursion)."""
    number: dict[Node, int] = {}
    low: dict[Node, int] = {}
    found: dict[Node, int] = {}
    stack: list[Node] = []
    count = 0
    for start in after:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        work = [(start, iter(after[start]))]
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(after[other])))
                    break
                if other not in found:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    while node not in found:
                        found[stack.pop()] = count
                    count += 1
    return found
