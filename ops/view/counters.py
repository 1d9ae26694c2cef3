"""The last minutes of RNICs' byte counters, of the agents that somebody looks at.

All counters of a large cluster are half a million samples a second: too many for a process that
shows pages. So whoever fills a view reads those of a page's agents only, and only while it is open.
"""

from collections.abc import Collection, Sequence
from typing import Final

from ops.log.entry import Entry
from schemas.codec import Codec, DecodeError
from schemas.records import CounterBatch
from schemas.topics import RNIC_COUNTERS
from schemas.units import MS_NS, SECOND_NS
from skeleton_job.series.columns import CounterColumns, counter_columns
from skeleton_job.series.counters import CounterStore
from skeleton_job.series.rates import RateMatrix, rate_matrix

# What a page shows: many steps of a training job, and as far back as is read in a moment.
HORIZON_MS: Final = 120_000
HORIZON_NS: Final = HORIZON_MS * MS_NS
# Coarse bins hold a step of most jobs, so that their mean is the job's throughput.
COARSE_NS: Final = 5 * SECOND_NS
# Fine ones show the bursts of a step; agents sample no more often by default.
FINE_NS: Final = SECOND_NS // 10
# Answers that are kept: of 64 hosts' RNICs half a megabyte each.
MAX_MADE: Final = 64


def read_counters(entry: Entry, codec: Codec) -> CounterBatch | CounterColumns | None:
    """Return the batch of an entry; None: it cannot be used, or bears another agent's key.

    As columns if it has the usual shape: a tenth of the work.
    """
    if entry.value is None:
        return None
    try:
        payload = codec.payload(RNIC_COUNTERS, entry.value)
        columns = None if payload is None else counter_columns(payload)
        batch = columns or codec.decode(RNIC_COUNTERS, entry.value)
    except DecodeError:
        return None
    return batch if batch.agent_id.encode() == entry.key else None


class RnicCounters:
    """Readings of the last two minutes of some agents' RNICs.

    Attributes
    ----------
    missing
        Why there may be none; None: whoever reads them has read on.
    """

    def __init__(self) -> None:
        self._store = CounterStore(HORIZON_NS)
        self._made: dict[tuple[frozenset[str], tuple[str, ...], int], RateMatrix] = {}
        self.missing: str | None = "nobody reads them"

    def add(self, batch: CounterBatch | CounterColumns) -> None:
        """Take a batch of an agent's."""
        if self._store.latest_of(batch.agent_id) is None:
            # Its past comes with it.
            self._made.clear()
        if isinstance(batch, CounterColumns):
            self._store.add_columns(batch)
        else:
            self._store.add_batch(batch)

    def latest_ns(self, agents: Collection[str]) -> int | None:
        """Return the median of these agents' latest readings; None without any."""
        return self._store.latest_ns(agents)

    def rates(
        self, agents: Collection[str], endpoints: Sequence[str], bin_ns: int
    ) -> RateMatrix | None:
        """Return the rates of endpoints over the horizon, in whole bins; None without readings.

        The last bin ends at the latest whole multiple of `bin_ns` since the epoch that half of
        these agents have reached. Until the next bin ends the answer stays the same, for those who
        look more often.
        """
        latest_ns = self.latest_ns(agents)
        if latest_ns is None:
            return None
        end_ns = latest_ns - latest_ns % bin_ns
        start_ns = end_ns - HORIZON_NS
        wanted = frozenset(agents), tuple(endpoints), bin_ns
        made = self._made.get(wanted)
        if made is not None and made.start_ns == start_ns:
            return made
        if len(self._made) >= MAX_MADE:
            self._made.clear()
        readings = self._store.readings(agents, endpoints, start_ns - SECOND_NS, latest_ns)
        made = rate_matrix(readings, start_ns=start_ns, end_ns=end_ns, bin_ns=bin_ns)
        self._made[wanted] = made
        return made

    def copy(self) -> "RnicCounters":
        """Return an empty one: of another moment they are read anew."""
        return RnicCounters()
