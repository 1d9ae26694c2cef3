"""What a result costs on the wire and on the broker's disk, by codec."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.bench.load import LoadShape
from ops.bench.report import Figure
from ops.bench.throughput_figures import Say, row
from ops.bench.throughput_rig import Rig
from schemas.topics import PROBE_ROUND

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# Enough for the broker's own bytes to count for nothing; each body once, so that nothing in the
# log is there twice.
SHAPE: Final = LoadShape(agents=1_600, bodies=1, twice=0)
INTERVALS: Final = 1
BAR_BYTES: Final = 8.0


def log_bytes(data_dir: Path, topic: str) -> int:
    """Return the bytes of a topic's log segments."""
    return sum(f.stat().st_size for f in (data_dir / "logs").glob(f"{topic}-*/*.log"))


def wire(
    made: Rig,
    runs: int,
    say: Say,
    *,
    shape: LoadShape = SHAPE,
    intervals: int = INTERVALS,
    codecs: Sequence[str] = CODECS,
) -> list[Figure]:
    """Publish the same rounds by each codec: as agents do, one round a batch; and together."""
    del runs  # the same load has the same bytes
    rows: list[Figure] = []
    raw: list[float] = []
    for codec in codecs:
        for alone in (True, False):
            prefix = f"wire-{codec}-{'alone' if alone else 'together'}."
            filled = made.fill(prefix, shape, intervals, compression=codec, alone=alone)
            raw = [filled.bytes / filled.results]
            topic = filled.settings.topic(PROBE_ROUND.name)
            stored = log_bytes(made.kafka.data_dir, topic) / filled.results
            how = "one round a batch, as agents send" if alone else "many rounds a batch"
            say(f"{codec}, {how}: {stored:.1f} bytes a result on the broker")
            bar = BAR_BYTES if codec == "zstd" and alone else None
            rows.append(row(f"on the broker, {codec}, {how}", [stored], "bytes a result",
                            bar, "<="))  # fmt: skip
    return [row("a result in Avro, its share of framing and header with it", raw,
                "bytes a result", sense="<="), *rows]  # fmt: skip
