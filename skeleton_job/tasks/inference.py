"""When to infer the skeleton of a job, and the input of an inference."""

from dataclasses import dataclass, replace
from typing import Final

from schemas.units import SECOND_NS
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import TOO_SHORT, Inference, infer
from skeleton_job.series.rates import rate_matrix
from skeleton_job.series.readings import Readings

# Batches of a second arrive up to this long after their last tick.
SETTLE_NS: Final = 3 * SECOND_NS // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceConfig:
    """When to infer, and from what window; event time."""

    interval_ns: int = 30 * SECOND_NS
    window_ns: int = 300 * SECOND_NS

    def window_end_ns(self, latest_ns: int) -> int:
        """Return the end of the latest window that readings up to a time complete."""
        return (latest_ns - SETTLE_NS) // self.interval_ns * self.interval_ns


@dataclass(frozen=True, slots=True)
class DueInference:
    """An inference that is due; its readings stay in the store until a worker is free."""

    task_id: str
    window_ns: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class InferenceInput:
    """The input of one inference, complete, so that another thread or process can run it."""

    job: Job
    window_ns: tuple[int, int]
    readings: Readings

    def without_readings(self) -> "InferenceInput":
        """Return a copy to keep while another process has the readings."""
        return replace(self, readings=self.readings.none())

    def infer(self) -> Inference:
        """Return the inference; the window starts no earlier than the job's first reading."""
        start_ns, end_ns = self.window_ns
        bin_ns = self.readings.tick_ns
        if bin_ns is None:
            return Inference(confidence=0.0, reason=TOO_SHORT)
        first = int(self.readings.time_ns.min())
        begin_ns = max(start_ns, -(-first // bin_ns) * bin_ns)
        if begin_ns + bin_ns > end_ns:
            return Inference(confidence=0.0, reason=TOO_SHORT)
        matrix = rate_matrix(self.readings, start_ns=begin_ns, end_ns=end_ns, bin_ns=bin_ns)
        return replace(infer(self.job, matrix), begin_ns=begin_ns)
