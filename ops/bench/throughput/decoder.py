"""The workers' decoder alone: bytes to columns, which are then dropped.

Or each value is put at the place of its 5-tuple, and nothing more is done with it: what a core that
judges these results has to do at least.

As in the workers, the kernel reads the rounds whose names and 5-tuples it knows; fastavro reads
the others, and the kernel learns from them. `python -m ops.bench.throughput.decoder` compiles the
kernels of workers and decoder, so that no measurement waits for that.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ops.bench.rig.load import Load, LoadShape
from schemas.codec import Codec
from schemas.columns.arrays import Int32s, Int64s
from schemas.columns.blocks import Block, Blocks
from schemas.columns.compiled import compiled
from schemas.columns.plan import Plan
from schemas.topics import PROBE_ROUND
from streams.columns.index import FlowIndex, Names
from streams.columns.quantities import COUNT
from streams.columns.round_kernel import ITEMS, ROUNDS, Field, Item, key_spans, read_rounds
from streams.columns.rounds import MISSING, round_columns
from streams.warm import warm

# Results of the messages that a consumer gives at a time.
ROOM: Final = 400_000
WARM_ROUNDS: Final = 20
# Results of each 5-tuple that are kept: as many as a window of 30 s has.
KEPT: Final = 30
_VALUES: Final = int(Item.VALUES)


@compiled
def put(items: Int64s, rows: Int32s, count: int, used: Int64s, values: NDArray[np.int32]) -> None:
    """Put what results measured at the places of their 5-tuples, over the oldest.

    Parameters
    ----------
    items, rows, count
        What `read_rounds` wrote, and how many results that are.
    used : (rows,) int64
        How many results of each 5-tuple came before; written.
    values : (quantities, kept, rows) int32
        Written.
    """
    for place in range(count):
        row = rows[place]
        slot = used[row] % values.shape[1]
        for quantity in range(COUNT):
            values[quantity, slot, row] = max(items[_VALUES + quantity, place], MISSING)
        used[row] += 1


class Decoder:
    """Decodes messages as a worker does; knows the names and 5-tuples that it has met.

    Parameters
    ----------
    kernels
        Whether the kernels decode, or fastavro alone.
    flows
        Of so many 5-tuples the values are put at their places.

    Attributes
    ----------
    used, values
        What `put` wrote, of messages that the kernel read.
    """

    def __init__(self, *, kernels: bool = True, flows: int = 0) -> None:
        self._codec = Codec()
        self._kernels = kernels
        if not kernels:
            return
        self._blocks = Blocks(self._codec.framer, ROUNDS)
        self._names, self._flows = Names(1), FlowIndex(1)
        self._numbers: dict[str, int] = {}
        self._rows_of: dict[tuple[str, str, str, int], int] = {}
        self._field_count = len(Field)
        self._items = np.zeros((ITEMS, ROOM), np.int64)
        self._rows = np.zeros(ROOM, np.int32)
        self.used = np.zeros(flows, np.int64)
        self.values = np.zeros((COUNT, KEPT, flows), np.int32)

    def count(self, values: Sequence[bytes]) -> int:
        """Decode messages; return how many results they hold."""
        if not self._kernels:
            return sum(self._alone(value)[1] for value in values)
        results = 0
        for block in self._blocks.make(values):
            at = 0
            while at < len(block):
                if block.plan is not None:
                    at, found = self._read(block, block.plan, at)
                    results += found
                if at < len(block):
                    datum, found = self._alone(values[block.first + at])
                    results += found
                    if block.plan is not None:
                        self._learn(block, block.plan, at, datum)
                    at += 1
        return results

    def _alone(self, value: bytes) -> tuple[dict[str, Any], int]:
        datum = self._codec.decode_datum(PROBE_ROUND, value)
        return datum, round_columns(datum).count

    def _read(self, block: Block, plan: Plan, at: int) -> tuple[int, int]:
        fields: Int64s = np.zeros((self._field_count, len(block)), np.int64)
        counts: Int64s = np.zeros(len(block), np.int64)
        at, found = read_rounds(
            block.data, block.starts, block.ends, at, plan, self._names.arrays,
            self._flows.arrays, fields, self._items, self._rows, counts,
        )  # fmt: skip
        if len(self.used):
            put(self._items, self._rows, found, self.used, self.values)
        return at, found

    def _learn(self, block: Block, plan: Plan, at: int, datum: dict[str, Any]) -> None:
        """Enter what a round names: agents, and 5-tuples by their bytes."""
        agent, results = datum["agent_id"], datum["results"]
        for name in (datum["cluster"], agent):
            self._names.enter(self._numbers.setdefault(name, len(self._numbers)), name)
        spans: Int64s = np.zeros((len(results), 2), np.int64)
        scratch: Int64s = np.zeros((max(self._field_count, len(self._items)), 1), np.int64)
        key_spans(block.data, block.starts[at], block.ends[at], plan, scratch, spans)
        rows = [
            self._rows_of.setdefault((agent, r["src"], r["dst"], r["flow"]), len(self._rows_of))
            for r in results
        ]
        self._flows.enter(np.array(rows, np.int64), self._numbers[agent], block.data, spans)


def main() -> int:
    """Have all kernels made or read."""
    warm(Codec())
    rounds = islice(Load(LoadShape(agents=2, bodies=2)).rounds(WARM_ROUNDS, 0), WARM_ROUNDS)
    decoder = Decoder(flows=LoadShape(agents=2).paths)
    decoder.count([sent.value for sent in rounds])
    print("{}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
