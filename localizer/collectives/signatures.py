"""Finds ranks that do different things at one sequence of a group, and says which is the odd one.

What has to agree depends on the operation: the elements of an all-reduce are as many everywhere,
those that ranks exchange in an all-to-all only pair by pair.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from operator import attrgetter
from typing import Any, Final

from localizer.collectives.groups import Group
from schemas.records import CollectiveOp

# An iteration repeats: so many operations before tell which place of it this is.
CONTEXT: Final = 3

Signature = tuple[Any, ...]
_ARGUMENTS: Final = attrgetter(
    "operation", "input_dtypes", "output_dtypes", "input_sizes", "output_sizes"
)


class Aspect(StrEnum):
    """In what ranks differ."""

    OPERATION = "operation"
    DTYPE = "dtype"
    SIZE = "size"
    SPLITS = "splits"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of a group that do not agree at one sequence.

    Attributes
    ----------
    odd
        Ranks that differ from what the program does here; empty if that cannot be told.
    how
        Why these are the odd ones, or what could not be told.
    said
        Rank -> what it did.
    shifted
        What the odd rank's own operations say of how it came about, if they do.
    pair
        Sender and receiver of an all-to-all that do not agree.
    beside
        No two ranks were seen to disagree: what is right is what other groups do.
    doubt
        Why the odd ones may be right.
    """

    group: Group
    sequence: int
    aspect: Aspect
    odd: tuple[int, ...]
    how: str
    said: Mapping[int, str]
    shifted: str | None
    pair: tuple[int, int] | None
    beside: bool = False
    doubt: str | None = None


def find_mismatch(group: Group, siblings: Sequence[Group]) -> Mismatch | None:
    """Return the first sequence at which ranks of a group do not agree, and not all are done.

    Parameters
    ----------
    group
        Where to look.
    siblings
        Groups of the same description: they do the same at the same sequence.
    """
    ranks = [rank for rank in group.operations if group.launched[rank] is not None]
    whole = not group.possible and set(ranks) == set(group.members)
    for sequence in _open_sequences(group, ranks, whole=whole):
        there = {r: group.operations[r][sequence] for r in ranks if sequence in group.operations[r]}
        all_there = whole and len(there) == len(ranks)
        if (pair := _disagreeing_pair(there, group.members) if all_there else None) is not None:
            return Mismatch(
                group, sequence, Aspect.SPLITS, (), "which of the two is wrong is not recorded",
                {r: _splits(there[r], pair, group.members) for r in pair}, None, pair,
            )  # fmt: skip
        if (aspect := _aspect(there, whole=all_there)) is not None:
            return _judge(group, sequence, aspect, there, siblings)
        if not all_there and (found := _beside_others(group, sequence, there, siblings)):
            return found
    return None


def _open_sequences(group: Group, ranks: Sequence[int], *, whole: bool) -> list[int]:
    """Return the sequences that not all ranks are known to have finished."""
    done = [group.done[rank] for rank in ranks]
    after = -1 if None in done else min((d for d in done if d is not None), default=-1)
    found: set[int] = set()
    for rank in ranks:
        sequences = list(group.operations[rank])
        found.update(sequences[bisect_right(sequences, after) :])
    if group.ends_alike and not whole:
        # The last of each rank may have failed together with a rank that left no dump.
        found |= {head for rank in ranks if (head := group.launched[rank]) is not None}
    return sorted(found)


def _beside_others(
    group: Group, sequence: int, there: Mapping[int, CollectiveOp], siblings: Sequence[Group]
) -> Mismatch | None:
    """Compare ranks whose peers left no dump with what they should have done.

    That is what the other groups of the description do, or, of an all-to-all, what all other
    ranks do and these did before.
    """
    values = {rank: _whole_signature(operation) for rank, operation in there.items()}
    is_exchange = all(o.operation.startswith(("all_to_all", "alltoall")) for o in there.values())
    right = _value_of_siblings(group, sequence, siblings, _whole_signature)
    how = f"the other groups {group.description!r} agree at this sequence"
    if right is None and is_exchange and len(there) > 2:
        value, count = Counter(values.values()).most_common(1)[0]
        before = [
            _last_exchange(group.operations[r], sequence) for r in there if values[r] != value
        ]
        if count >= len(there) - 1 and all(b == value for b in before):
            right, how = value, f"{count} of {len(there)} ranks agree, and it did so before"
    odd = tuple(r for r in sorted(values) if right is not None and values[r] != right)
    if not odd or right is None:
        return None
    aspect = Aspect.SPLITS if is_exchange else Aspect.SIZE
    if any(values[r][0] != right[0] for r in odd):
        aspect = Aspect.OPERATION
    elif any(values[r][1] != right[1] for r in odd):
        aspect = Aspect.DTYPE
    said = {rank: describe(operation) for rank, operation in sorted(there.items())}
    return Mismatch(group, sequence, aspect, odd, how, said, None, None, beside=True)


def _last_exchange(operations: Mapping[int, CollectiveOp], sequence: int) -> Signature | None:
    """Return the last all-to-all before a sequence."""
    for earlier in sorted((s for s in operations if s < sequence), reverse=True):
        if operations[earlier].operation.startswith(("all_to_all", "alltoall")):
            return _whole_signature(operations[earlier])
    return None


def signature(operation: CollectiveOp) -> Signature:
    """Return what all ranks must agree on, as far as each rank says it alone."""
    return (operation.operation, _dtypes(operation), _sizes(operation))


def describe(operation: CollectiveOp) -> str:
    """Return an operation as text: name, type and shapes of the tensors."""
    held = operation.input_sizes or operation.output_sizes
    shapes = " + ".join("×".join(map(str, shape)) or "scalar" for shape in held[:4])
    if len(held) > 4:
        shapes += f" + {len(held) - 4} more"
    dtype = next(iter(operation.input_dtypes or operation.output_dtypes), "")
    text = f"{operation.operation} {dtype} {shapes}".strip()
    if operation.operation.startswith(("all_to_all", "alltoall")):
        out = " + ".join("×".join(map(str, shape)) for shape in operation.output_sizes[:4])
        text += f" → {out}"
    return " ".join(text.split())


def _aspect(there: Mapping[int, CollectiveOp], *, whole: bool) -> Aspect | None:
    """Return the first thing in which operations differ that must not."""
    operations = list(there.values())
    # Of ten thousand that are alike one is looked at.
    different = {_ARGUMENTS(operation): operation for operation in operations}.values()
    if len({o.operation for o in different}) > 1:
        return Aspect.OPERATION
    if len({d for o in different if (d := _dtypes(o))}) > 1:
        return Aspect.DTYPE
    if operations[0].operation.startswith(("all_to_all", "alltoall")):
        sent = sum(_elements(o.input_sizes) for o in operations)
        received = sum(_elements(o.output_sizes) for o in operations)
        return Aspect.SPLITS if whole and sent != received else None
    return Aspect.SIZE if len({_sizes(o) for o in different}) > 1 else None


def _dtypes(operation: CollectiveOp) -> tuple[str, ...]:
    return tuple(sorted({*operation.input_dtypes, *operation.output_dtypes}))


def _sizes(operation: CollectiveOp) -> tuple[int, ...]:
    """Return the numbers of elements that all ranks must have alike; none where none must."""
    name = operation.operation.lstrip("_")
    inputs, outputs = (
        tuple(prod(shape) for shape in shapes)
        for shapes in (operation.input_sizes, operation.output_sizes)
    )
    if name.startswith(("all_reduce", "allreduce", "broadcast", "reduce_scatter", "gather")):
        return inputs or outputs
    if name.startswith("reduce"):
        return inputs
    if name.startswith(("all_gather", "allgather", "scatter")):
        return outputs
    return ()


def _elements(shapes: Sequence[Sequence[int]]) -> int:
    return sum(prod(shape) for shape in shapes)


def _disagreeing_pair(
    there: Mapping[int, CollectiveOp], members: Sequence[int]
) -> tuple[int, int] | None:
    """Return sender and receiver that do not agree on an all-to-all of one tensor for each."""
    size = len(members)
    for operation in there.values():
        if not operation.operation.startswith(("all_to_all", "alltoall")):
            return None
        if len(operation.input_sizes) != size or len(operation.output_sizes) != size or size < 2:
            return None
    for place, sender in enumerate(members):
        for other, receiver in enumerate(members):
            sent = there[sender].input_sizes[other]
            if prod(sent) != prod(there[receiver].output_sizes[place]):
                return sender, receiver
    return None


def _splits(operation: CollectiveOp, pair: tuple[int, int], members: Sequence[int]) -> str:
    sender, receiver = (members.index(rank) for rank in pair)
    sent = "×".join(map(str, operation.input_sizes[receiver]))
    expected = "×".join(map(str, operation.output_sizes[sender]))
    return f"sends {sent} to rank {pair[1]}, expects {expected} from rank {pair[0]}"


def _judge(
    group: Group,
    sequence: int,
    aspect: Aspect,
    there: Mapping[int, CollectiveOp],
    siblings: Sequence[Group],
) -> Mismatch:
    # An all-to-all has no size that is right for all, but equal ones are most often meant.
    read = _whole_signature if aspect is Aspect.SPLITS else signature
    values = {rank: read(operation) for rank, operation in there.items()}
    right, how, doubt = _right_value(group, sequence, values, siblings, read)
    odd = tuple(r for r in sorted(values) if right is not None and values[r] != right)
    shifted = None
    if len(odd) == 1 and right is not None:
        reference = next(r for r in sorted(values) if values[r] == right)
        shifted = _shift(group.operations[odd[0]], group.operations[reference], sequence)
    said = {rank: describe(operation) for rank, operation in sorted(there.items())}
    return Mismatch(group, sequence, aspect, odd, how, said, shifted, None, doubt=doubt)


def _whole_signature(operation: CollectiveOp) -> Signature:
    return (
        operation.operation, _dtypes(operation), operation.input_sizes, operation.output_sizes,
    )  # fmt: skip


def _right_value(
    group: Group,
    sequence: int,
    values: Mapping[int, Signature],
    siblings: Sequence[Group],
    read: Any,
) -> tuple[Signature | None, str, str | None]:
    """Return what the program does here, how that is known, and why it may be otherwise."""
    counted = Counter(values.values()).most_common()
    agree, size = counted[0][1], len({*group.members, *group.possible})
    if 2 * agree > len(values):
        doubt = None
        if 2 * agree <= size:
            doubt = (
                f"those that agree are {agree} of {size} ranks: the others may do as the odd ones"
            )
        return counted[0][0], f"{agree} of {len(values)} ranks agree", doubt
    value = _value_of_siblings(group, sequence, siblings, read)
    if value is not None and value in values.values():
        return value, f"the other groups {group.description!r} agree at this sequence", None
    expected = {
        value
        for rank in values
        if (value := _expected(group.operations[rank], sequence, read)) is not None
    }
    if len(expected) == 1 and (value := expected.pop()) in values.values():
        doubt = "no more ranks do this than something else: the program may change here"
        return value, "so it was in earlier iterations", doubt
    return None, "neither number nor earlier iterations tell which ranks are right", None


def _value_of_siblings(
    group: Group, sequence: int, siblings: Sequence[Group], read: Any
) -> Signature | None:
    """Return what the groups of the same description do at a sequence.

    None if they do not all do the same, or did not do the same as this group just before: groups
    of two stages of a pipeline are called alike and move different sizes.
    """
    others = [
        held
        for sibling in siblings
        if sibling.name != group.name
        for held in sibling.operations.values()
    ]
    found = {read(held[sequence]) for held in others if sequence in held}
    if len(found) != 1:
        return None
    compared = 0
    for earlier in range(sequence - CONTEXT, sequence):
        both = [
            {read(held[earlier]) for held in side if earlier in held}
            for side in (others, group.operations.values())
        ]
        if all(both):
            compared += 1
            if both[0] != both[1]:
                return None
    return found.pop() if compared else None


def _expected(operations: Mapping[int, CollectiveOp], sequence: int, read: Any) -> Signature | None:
    """Return what followed the last time after the same operations as now."""
    before = [operations.get(sequence - k) for k in range(1, CONTEXT + 1)]
    if None in before:
        return None
    now = [read(o) for o in before if o is not None]
    for earlier in sorted((s for s in operations if s < sequence), reverse=True):
        held = [operations.get(earlier - k) for k in range(1, CONTEXT + 1)]
        if None in held:
            return None
        if [read(o) for o in held if o is not None] == now:
            return read(operations[earlier])  # type: ignore[no-any-return]
    return None


def _shift(
    odd: Mapping[int, CollectiveOp], right: Mapping[int, CollectiveOp], sequence: int
) -> str | None:
    """Say whether an odd rank left an operation out, did one more, or turned two round."""

    def at(operations: Mapping[int, CollectiveOp], place: int) -> Signature | None:
        return signature(operations[place]) if place in operations else None

    here, there = at(odd, sequence), at(right, sequence)
    next_here, next_there = at(odd, sequence + 1), at(right, sequence + 1)
    if next_here is not None and next_here == there:
        if here == next_there:
            return "it did this and the next operation in the opposite order"
        if at(odd, sequence + 2) in {None, next_there}:
            return "it did one operation more, and is one behind"
    if here == next_there and next_there is not None and next_here != there:
        return "it left one operation out, and is one ahead"
    return None
