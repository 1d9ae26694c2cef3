"""Which bad 5-tuples of a storm are looked at.

A dead spine makes a hundred thousand 5-tuples bad within a second, and a decision takes a dozen
steps for each of them. A thousand tell as well where the fault is. So of more a sample is
taken, and each 5-tuple in it stands for as many as it is one of.

What a decided fault accounts for is sampled by itself, and so is what else began with it: where
replies come back another way, as many as it cuts off lose only these. A small fault beside a large
one is whole again at the decision after the one that names the large one, and one that begins later
from its beginning.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from schemas.ids import FlowId

# 5-tuples that are looked at, of those that decided faults account for, of those that began with
# these faults, and of the others. Those of a spine of a hundred thousand cross each of its cables
# some ten times.
MOST: Final = 1_024
# Multiplies one end's number, so that pairs of alike names do not meet; the low bits of the sum,
# which depend on few of those of both, are not used.
MIX: Final = 0x9E3779B1
LEFT_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """Bad 5-tuples, of which some are looked at.

    Attributes
    ----------
    parts
        How many each 5-tuple of a part stands for, and these.
    left_out
        The 5-tuples that are not looked at.
    """

    parts: tuple[tuple[int, Collection[FlowId]], ...]
    left_out: tuple[FlowId, ...] = ()

    def __iter__(self) -> Iterator[tuple[int, FlowId]]:
        """Yield what is looked at: how many it stands for, and the 5-tuple."""
        for stands_for, keys in self.parts:
            for key in keys:
                yield stands_for, key


def is_storm(keys: AbstractSet[FlowId]) -> bool:
    """Return whether bad 5-tuples are so many that a sample of them is taken."""
    return len(keys) > MOST


def sample_of(keys: AbstractSet[FlowId], apart: Sequence[AbstractSet[FlowId]] = ()) -> Sample:
    """Return which of some bad 5-tuples are looked at: all unless there are very many.

    It depends on the 5-tuples alone. One that is looked at stays so until there are twice as many.

    Parameters
    ----------
    apart
        5-tuples that are sampled by themselves; what is in several is part of the first.
    """
    if not is_storm(keys):
        return Sample(((1, keys),))
    parts: list[tuple[int, Collection[FlowId]]] = []
    left_out: list[FlowId] = []
    for some in _divided(keys, apart):
        rate = _rate(len(some))
        taken: Collection[FlowId] = some
        others: Collection[FlowId] = ()
        while rate > 1:
            taken, others = _split(some, rate)
            if 4 * len(taken) >= MOST:
                break
            # At least half of `MOST` are expected: these are of a few pairs, and may be none.
            rate //= 2
            taken, others = some, ()
        left_out += others
        parts.append((rate, taken))
    return Sample(tuple(parts), tuple(left_out))


def _divided(
    keys: AbstractSet[FlowId], apart: Sequence[AbstractSet[FlowId]]
) -> Iterator[AbstractSet[FlowId]]:
    """Yield what of the 5-tuples is in each set and in none before, then the others."""
    for some in apart:
        if known := keys & some:
            keys = keys - known
            yield known
    yield keys


def _rate(count: int) -> int:
    """Return one of how many 5-tuples is looked at: a power of two."""
    return 1 << (max(0, count - 1) // MOST).bit_length()


def _split(keys: Iterable[FlowId], rate: int) -> tuple[list[FlowId], list[FlowId]]:
    """Return one of so many 5-tuples, and the others; those of a pair stay together.

    A loss test flags the 5-tuples of a pair together, and they count as one.
    """
    taken: list[FlowId] = []
    others: list[FlowId] = []
    codes = _Codes()
    for key in keys:
        src, dst, _ = key
        code = codes[src] + MIX * codes[dst]
        (others if code >> LEFT_BITS & rate - 1 else taken).append(key)
    return taken, others


class _Codes(dict[str, int]):
    """A number of each endpoint; not its `hash`, which differs from process to process."""

    def __missing__(self, name: str) -> int:
        code = self[name] = crc32(name.encode())
        return code
