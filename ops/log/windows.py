"""Windows of 5-tuples as columns: most of what readers of states fold, so not one object each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas import topics
from schemas.columns.arrays import Int64s
from schemas.columns.interpreter import NULL
from schemas.columns.records import RecordColumns
from schemas.records import PathWindow
from schemas.topics import Topic

# What is read of a window beside its 5-tuple, agent and times; the four times first.
FIELDS: Final = (
    "p50_ns", "p99_ns", "host_delay_p50_ns", "responder_delay_p50_ns", "sent", "lost",
)  # fmt: skip
P50, P99, PROBER, RESPONDER, SENT, LOST = range(len(FIELDS))


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Windows, one row for each.

    Attributes
    ----------
    src, dst, agent
        Ends of the 5-tuple, and who probes it.
    flow, start_at, end_at : (n,) int64
        Number of the 5-tuple in its pair; times in microseconds since the epoch.
    values : (len(FIELDS), n) int64
        `NULL` where it was not measured.
    """

    src: Sequence[str]
    dst: Sequence[str]
    agent: Sequence[str]
    flow: Int64s
    start_at: Int64s
    end_at: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.flow)

    def __getitem__(self, part: slice) -> "WindowColumns":
        """Return some that follow each other."""
        return WindowColumns(
            self.src[part], self.dst[part], self.agent[part], self.flow[part],
            self.start_at[part], self.end_at[part], self.values[:, part],
        )  # fmt: skip


def columns_of(windows: Sequence[PathWindow]) -> WindowColumns:
    """Return records as columns."""
    values = [
        [NULL if value is None else value for value in (getattr(w, name) for w in windows)]
        for name in FIELDS
    ]
    return WindowColumns(
        src=[w.src for w in windows],
        dst=[w.dst for w in windows],
        agent=[w.agent_id for w in windows],
        flow=np.array([w.flow for w in windows], np.int64),
        start_at=np.array([w.window_start_at for w in windows], np.int64),
        end_at=np.array([w.window_end_at for w in windows], np.int64),
        values=np.array(values, np.int64).reshape(len(FIELDS), len(windows)),
    )


@dataclass(frozen=True, slots=True)
class SeenWindows:
    """Consecutive windows of a partition, and where they stood.

    Attributes
    ----------
    offsets, timestamps_ms : (n,) int64
        Rising offsets; Kafka timestamps, milliseconds since the epoch, 0 where there is none.
    """

    partition: int
    offsets: Int64s
    timestamps_ms: Int64s
    windows: WindowColumns
    topic: Topic = topics.PROBE_WINDOW

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, part: slice) -> "SeenWindows":
        """Return some that follow each other."""
        return SeenWindows(
            self.partition, self.offsets[part], self.timestamps_ms[part], self.windows[part]
        )


def read_windows(block: RecordColumns) -> WindowColumns:
    """Return the windows of a block that could be read."""
    return WindowColumns(
        src=block.texts("src"),
        dst=block.texts("dst"),
        agent=block.texts("agent_id"),
        flow=block.numbers("flow"),
        start_at=block.numbers("window_start_at"),
        end_at=block.numbers("window_end_at"),
        values=np.stack([block.numbers(name) for name in FIELDS]),
    )
