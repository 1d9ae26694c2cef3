"""The state machine of one partition: rounds in, windows, anomalies and progress marks out.

Every output is a function of the partition's log alone: of event times, never of
the clock on the wall, of batches or of restarts. For each round, in this order:
what its probes show; windows that its time closes and what they show; on the
refresh grid, the open anomalies once more; on the progress grid, how far the
partition is decided.

While it is not `live`, rounds have an effect on the state only. After a restart the machine
processes the look-back this way; then it gets the published tail by `restore`, or by `rebuild`
and `expect`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from schemas.columns.arrays import Int64s
from schemas.columns.blocks import Block
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import US_NS
from streams.columns.rounds import RoundColumns
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.anchors import Anchor, retire_ns
from streams.core.clock import ClockState
from streams.core.detection import Detection
from streams.core.history import Earlier
from streams.core.outputs import (
    Output,
    anomaly_output,
    progress,
    window_output,
)
from streams.core.partition import START, Identity, PartitionState, UnfinishedRound, observe_round
from streams.core.plain_rounds import PlainRounds
from streams.core.published import WindowColumns, columns_of
from streams.core.window_records import WindowBatch, window_batch
from streams.core.windows import ClosedWindow
from streams.detectors.base import Detector
from streams.detectors.registry import DETECTORS


class PartitionMachine(PartitionState):
    """A partition with its detectors.

    Parameters
    ----------
    config, identity
        Settings; cluster and partition for the records.
    anchor
        Where the log is entered, and the clock there.
    floor_ns
        Results before this time are in published windows already.
    publish_windows
        Whether windows are among the outputs; their anomalies are in any case.
    detectors
        What observes the partition.

    Attributes
    ----------
    window_sink
        Is given the closed windows of an index at once, which then are not among the outputs.
    live
        False during the look-back: rounds have an effect on the state only.
    """

    def __init__(
        self,
        config: DetectionConfig,
        identity: Identity,
        anchor: Anchor = Anchor(0, START),  # noqa: B008 - frozen
        floor_ns: int = 0,
        *,
        publish_windows: bool = True,
        detectors: Sequence[type[Detector]] = DETECTORS,
    ) -> None:
        super().__init__(config, identity, anchor, floor_ns)
        self._publish_windows = publish_windows
        self.window_sink: Callable[[WindowBatch], None] | None = None
        self.live = True
        self._plain = PlainRounds(self)
        self._first_open = self.windows.first_open
        self.detection = Detection(
            config, identity.cluster, self.recent, lambda: self.windows.first_open, detectors
        )

    @property
    def lookback(self) -> Anchor:
        """Where a restart at this point must begin to read."""
        return self.anchors.start(self.clock)

    @property
    def closed_ns(self) -> int:
        """Time up to which windows are closed."""
        return self.windows.closed_ns

    def history_starts_ns(self) -> tuple[int, int]:
        """Return from which event times on `restore` needs published windows and anomalies."""
        config = self.config
        windows_ns = self.closed_ns - self.detection.history_ns
        # Clearings within the look-back windows, and the last refresh.
        span_ns = (config.lookback_windows + 4) * config.window_ns + 2 * REFRESH_STEP_NS
        return max(windows_ns, 0), max(self.closed_ns - span_ns, 0)

    @property
    def lookback_start_ns(self) -> int:
        """Event time from which on `rebuild` needs published windows."""
        return max(self.closed_ns - self.detection.lookback_ns, 0)

    @property
    def open_anomalies(self) -> int:
        """Number of open anomalies."""
        return len(self.detection)

    @property
    def progress_at(self) -> int | None:
        """Last grid point passed, microseconds; None before the first round."""
        if self.clock.watermark_ns is None:
            return None
        return self.clock.reach_ns // PROGRESS_STEP_NS * PROGRESS_STEP_NS // US_NS

    def process(
        self, datum: dict[str, Any], offset: int, columns: RoundColumns | None = None
    ) -> list[Output]:
        """Process the round at `offset`; return what is published of it, in order.

        Parameters
        ----------
        datum
            As decoded; with `columns` it need not hold the results.
        columns
            The datum as columns, where the caller has them already.

        Raises
        ------
        RefusedRoundError
            If the round cannot count; the state knows it was there.
        """
        step = observe_round(self, datum, offset, columns)
        return [] if step is None else self._finish_round(step)

    def process_plain(self, block: Block, at: int, latest_us: Int64s) -> tuple[int, list[Output]]:
        """Process plain rounds from number `at` of a block on.

        Whether a round goes through here or through `process` changes no output.

        Parameters
        ----------
        latest_us
            How late each round of the block may start, by its arrival.

        Returns
        -------
        int
            The first round that is not plain; the block's length if all are plain.
        list of Output
            What the rounds publish, in order.
        """
        outputs: list[Output] = []
        for entered in self._plain.observe(block, at, latest_us, lambda: not self.open_anomalies):
            if isinstance(entered, UnfinishedRound):
                outputs += self._finish_round(entered)
                continue
            at = entered.behind
            if len(entered.answers.rows):
                self.detection.observe_results(entered.answers, decide=False)
            if self.live:
                outputs += [anomaly_output(self._progress(grid_ns)) for grid_ns in entered.grid_ns]
        return at, outputs

    def learn(self, block: Block, at: int, datum: Mapping[str, Any]) -> None:
        """Enter the names and 5-tuples of a round of a block that was processed by itself."""
        self._plain.learn(block, at, datum)

    def _finish_round(self, step: UnfinishedRound) -> list[Output]:
        """Return what is published of a round that is in windows and rings already."""
        self.detection.begin_round()
        anomalies = self.detection.observe_results(step.results, decide=self.live)
        watermark_ns = self.clock.watermark_ns or 0
        closed = self.windows.close(watermark_ns - self.config.lateness_ns)
        return self._outputs(step.before, anomalies, closed)

    def _outputs(
        self, before: ClockState, anomalies: list[Anomaly], closed: list[ClosedWindow]
    ) -> list[Output]:
        """Return what is published of a round: by its probes, its windows, its time."""
        if not self.live:
            self._retire(before)
            self._first_open = self.windows.first_open
            return []
        outputs = [anomaly_output(a) for a in anomalies]
        for window in closed:
            batch = window_batch(window, self.recent, self.identity.cluster, self.config.window_ns)
            self.counts["windows"] += len(batch)
            if self.window_sink is not None:
                self.window_sink(batch)
            elif self._publish_windows:
                outputs += [window_output(r) for r in batch.records()]
            judged = self.detection.observe_windows(window.index, batch)
            outputs += [anomaly_output(a) for a in judged]
        first_open = self.windows.first_open
        judged = self.detection.observe_closed(self._first_open, first_open)
        self._first_open = first_open
        outputs += [anomaly_output(a) for a in [*judged, *self._observe_time(before)]]
        self.counts["anomalies"] += sum(
            isinstance(o.record, Anomaly) and o.record.kind is not AnomalyKind.PROGRESS
            for o in outputs
        )
        return outputs

    def restore(self, windows: Iterable[PathWindow], anomalies: Iterable[Anomaly]) -> None:
        """After the look-back, rebuild from the published tail what was decided.

        Parameters
        ----------
        windows
            Published windows since the first of `history_starts_ns`, in order.
        anomalies
            Published anomalies since the second, in order.
        """
        parts = [columns_of(list(windows))]
        self.detection.restore(parts, list(anomalies), whole_history=True)

    def rebuild(self, parts: Iterable[WindowColumns], anomalies: Iterable[Anomaly]) -> None:
        """Do the same but for background histories, whose windows `expect` announces.

        Parameters
        ----------
        parts
            Published windows since `lookback_start_ns`, in order, all of one reader.
        anomalies
            As for `restore`.
        """
        self.detection.restore(parts, list(anomalies), whole_history=False)

    def expect(self, earlier: Earlier) -> None:
        """After `rebuild`, let background histories wait for the windows of `add_earlier`.

        They begin with the first of `history_starts_ns`, and end where new ones begin. The
        machine waits for them when a decision needs them, which is at the end of a block.
        """
        self.detection.expect(earlier, self.clock.watermark_ns or 0)

    def add_earlier(self, part: WindowColumns) -> None:
        """Add expected windows, in order, all of one reader; from one other thread."""
        self.detection.add_earlier(part)

    def _observe_time(self, before: ClockState) -> list[Anomaly]:
        """Return what the passing of time brings: refreshes, clearings, a progress mark."""
        anomalies: list[Anomaly] = []
        grid_ns = _crossed(before, self.clock, REFRESH_STEP_NS)
        if grid_ns is not None:
            # Until the next refresh a restart may begin to read up to so much later than now.
            known_ns = self.history_starts_ns()[1] + 2 * self.config.window_ns
            anomalies += self.detection.refresh(grid_ns, known_ns)
            self._retire(before)
        grid_ns = _crossed(before, self.clock, PROGRESS_STEP_NS)
        if grid_ns is not None:
            anomalies += self.detection.observe_time(grid_ns)
            anomalies.append(self._progress(grid_ns))
        return anomalies

    def _progress(self, grid_ns: int) -> Anomaly:
        return progress(
            self.identity.cluster, self.identity.partition, AnomalyState.ONGOING, grid_ns // US_NS
        )

    def _retire(self, before: ClockState) -> None:
        """On the refresh grid, forget the probes of 5-tuples that fell silent.

        By the watermark, which may stay behind the grid: it is what closes windows.
        """
        grid_ns = _crossed(before, self.clock, REFRESH_STEP_NS)
        if grid_ns is not None:
            now_ns = min(grid_ns, self.clock.watermark_ns or 0)
            for row in self.forget_silent(now_ns - retire_ns(self.config)):
                self.detection.forget_row(row)


def _crossed(before: ClockState, after: ClockState, step_ns: int) -> int | None:
    """Return the last grid point that the partition's reach has passed by this round."""
    if after.watermark_ns is None:
        return None
    grid_ns = after.reach_ns // step_ns * step_ns
    if before.watermark_ns is not None and before.reach_ns >= grid_ns:
        return None
    return grid_ns
