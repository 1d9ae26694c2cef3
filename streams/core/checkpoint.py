"""What a committed offset says beside the offset: all that a restart needs to know.

Kafka keeps a short text with each committed offset. Here it holds the look-back
anchor, how far windows were closed, and how far the output partitions were
written when the offset was committed. Output records beyond belong to rounds
beyond the committed offset.
"""

import json
from dataclasses import astuple, dataclass
from typing import Final, Self

from streams.core.anchors import Anchor
from streams.core.clock import ClockState

FORMAT: Final = 2
# Of version 0.1.0: its clock was another, and its windows may overlap those that are open now, as
# windows of another length do.
FORMER_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """State of one partition at a committed offset.

    Attributes
    ----------
    offset
        Next round to process.
    lookback
        Where reading must begin, and the clock there.
    closed_ns
        Windows that end by this time are published, of the agent that is furthest.
    window_ns
        Their length.
    window_offset, anomaly_offset
        Ends of the output partitions that belong to rounds before `offset`.
    """

    offset: int
    lookback: Anchor
    closed_ns: int
    window_ns: int
    window_offset: int
    anomaly_offset: int

    def metadata(self) -> str:
        """Return the text that goes with the offset; well below the broker's 4,096 bytes."""
        return json.dumps(
            {
                "format": FORMAT,
                "lookback": self.lookback.offset,
                "clock": astuple(self.lookback.clock),
                "closed_ns": self.closed_ns,
                "window_ns": self.window_ns,
                "outputs": [self.window_offset, self.anomaly_offset],
            },
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, offset: int, metadata: str | None) -> Self | None:
        """Return the checkpoint of a committed offset, None where the text is not ours."""
        try:
            content = json.loads(metadata or "")
            former = content["format"] == FORMER_FORMAT
            if content["format"] != FORMAT and not former:
                return None
            arrival_ns, paused_ns = (None, 0) if former else content["clock"]
            window_offset, anomaly_offset = content["outputs"]
            return cls(
                offset=offset,
                lookback=Anchor(
                    int(content["lookback"]),
                    ClockState(None if arrival_ns is None else int(arrival_ns), int(paused_ns)),
                ),
                closed_ns=int(content["closed_ns"]),
                window_ns=0 if former else int(content["window_ns"]),
                window_offset=int(window_offset),
                anomaly_offset=int(anomaly_offset),
            )
        except (KeyError, TypeError, ValueError):
            return None
