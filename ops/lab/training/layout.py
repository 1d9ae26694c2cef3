"""Which ranks of the lab's training job do collectives together."""

from typing import Final

TENSOR_PARALLEL: Final = 2


def groups(ranks: int, tensor_parallel: int = TENSOR_PARALLEL) -> dict[str, list[int]]:
    """Return the members of each sub-group by name: `tp` and its first rank, `dp` and its place.

    >>> groups(4)
    {'tp0': [0, 1], 'tp2': [2, 3], 'dp0': [0, 2], 'dp1': [1, 3]}
    """
    tensor = {
        f"tp{begin}": list(range(begin, begin + tensor_parallel))
        for begin in range(0, ranks, tensor_parallel)
    }
    data = {
        f"dp{place}": list(range(place, ranks, tensor_parallel)) for place in range(tensor_parallel)
    }
    return tensor | data
