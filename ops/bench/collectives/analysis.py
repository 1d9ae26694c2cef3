"""What the hang watcher takes for jobs of very many ranks: intake, a decision, an analysis.

All in seconds of CPU time of one core, without a broker. One job is large and has few operations:
its analysis counts. Another one launches as much as is published of large jobs. Of both, intake and
decisions of the second half count, for which no reader has anything to learn.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

import numpy as np

from localizer.collectives import operation_fold
from localizer.collectives.batch_reader import BatchReader
from localizer.collectives.hang_watch import HangWatch
from ops.bench.collectives.large_job import FEW, MANY, SECOND_US, Load, Message, messages
from ops.bench.rig.report import Figure, Say, figure
from schemas.codec import Codec
from schemas.process import memory
from schemas.records import Hang
from schemas.units import SECOND_NS, US_NS

ANALYSIS_BAR_S: Final = 2.0
LOADS: Final = (Load(10_240, FEW, window_s=10), Load(1_024, MANY, window_s=20))
# Messages that are read at once, as the watcher polls.
POLL: Final = 500
MB: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one job took.

    Attributes
    ----------
    reading_s, folding_s
        CPU seconds for what came in the second half: `operations`, `n_bytes`.
    decisions_s
        CPU seconds of each decision while the job went on, in the second half.
    analysis_s
        CPU seconds of the decision that found the hang.
    found
        What was told at the end; before it, nothing may be.
    """

    reading_s: float
    folding_s: float
    operations: int
    n_bytes: int
    decisions_s: Sequence[float]
    analysis_s: float
    found: Sequence[Hang]

    @property
    def intake_s(self) -> float:
        """CPU seconds of reading and folding."""
        return self.reading_s + self.folding_s


def _polls(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield messages as many at once as the watcher polls."""
    rest = iter(messages)
    while part := list(islice(rest, POLL)):
        yield part


def run(load: Load, sent: Sequence[Message]) -> Run:
    """Read, fold and decide as the watcher does, until the hang is told."""
    stands_us = load.begin_us + load.window_s * SECOND_US
    later_us = load.begin_us + load.window_s * SECOND_US // 2
    watch, reader = HangWatch("bench"), BatchReader(Codec())
    operation_fold.warm()
    reader.warm()
    reading_s = folding_s = 0.0
    count = n_bytes = 0
    decisions_s: list[float] = []
    found: list[Hang] = []
    # A rank is read every two seconds: all that came at a time, then what is due.
    for at_us, came in groupby(sent, key=attrgetter("at_us")):
        counts = later_us < at_us <= stands_us
        for part in _polls(came):
            began = time.process_time()
            read = reader.read([m.value for m in part], np.full(len(part), at_us * US_NS, np.int64))
            was_read = time.process_time()
            for held in read:
                if held is None:
                    raise RuntimeError("a batch that could not be read")
                watch.feed(held.rank_id, held, at_us * US_NS)
            if counts:
                reading_s += was_read - began
                folding_s += time.process_time() - was_read
                count += sum(len(held.operations) for held in read if held is not None)
                n_bytes += sum(len(m.value) for m in part)
        if at_us < stands_us:
            began = time.process_time()
            found += watch.advance(at_us * US_NS)
            if counts:
                decisions_s.append(time.process_time() - began)
    began = time.process_time()
    found += watch.advance(sent[-1].at_us * US_NS + SECOND_NS)
    return Run(
        reading_s=reading_s, folding_s=folding_s, operations=count, n_bytes=n_bytes,
        decisions_s=decisions_s, analysis_s=time.process_time() - began, found=found,
    )  # fmt: skip


def measure(runs: int, say: Say, loads: Sequence[Load] = LOADS) -> list[Figure]:
    """Let a rank of each job stall; return what its hang took.

    Raises
    ------
    RuntimeError
        If something else than that rank is named, or something is told before.
    """
    # As the watcher's process does.
    memory.collect_on_demand()
    rows = []
    for load in loads:
        culprit = load.ranks // 3
        sent = messages(load, culprit, Codec())
        found = []
        for number in range(runs):
            one = run(load, sent)
            say(
                f"{load.ranks:,} ranks, {number + 1}/{runs}: {one.operations:,} operations in "
                f"{one.intake_s:.2f} s, analysis {one.analysis_s:.2f} s: "
                f"{[(h.hang_class.value, h.ranks, len(h.waiting_ranks)) for h in one.found]}"
            )
            if [hang.ranks for hang in one.found] != [(culprit,)]:
                raise RuntimeError(f"rank {culprit} stalls, told: {one.found}")
            found.append(one)
        rows += figures(load, found)
    return rows


def figures(load: Load, found: Sequence[Run]) -> list[Figure]:
    """Return the rows of a job."""
    what = f"{load.ranks:,} ranks × {load.rate_hz} operations a second"
    decisions_s = [took for one in found for took in one.decisions_s]
    return [
        figure(
            f"{what}: one analysis, one core", [r.analysis_s for r in found], "s of CPU",
            ANALYSIS_BAR_S,
        ),
        figure(f"{what}: a decision while the job goes on", decisions_s, "s of CPU"),
        figure(
            f"{what}: taken in by one core, without a broker",
            [r.n_bytes / MB / r.intake_s for r in found], "MB/s",
        ),
        figure("… operations", [r.operations / r.intake_s for r in found], "a second"),
    ]  # fmt: skip
