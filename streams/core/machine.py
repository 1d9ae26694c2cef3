"""The state machine of one partition: rounds in, windows, anomalies and progress marks out.

Every output is a function of the partition's log alone: of its records and the times at which the
broker took them, never of the clock on the wall, of batches or of restarts. For each round, in this
order: what its probes show; when its arrival passes the progress grid, the windows that agents'
clocks close and what these show; on the refresh grid, the open anomalies once more; on the progress
grid, how far the partition is decided.

While it is not `live`, rounds have an effect on the state only. After a restart the machine
processes the look-back this way; then it gets the published tail by `restore`, or by `rebuild`
and `expect`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.columns.arrays import Int64s
from schemas.columns.blocks import Block
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import MS_NS, US_NS
from streams.columns.rounds import RoundColumns
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.anchors import ANCHOR_STEP_NS, Anchor, agents_horizon_ns, retire_ns
from streams.core.clock import ClockState, max_open_ns
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

# Room for so many times as many 5-tuples as there are is worth a restart; for few it is not: these
# take some 30 MB.
ROOMY: Final = 4
FEW_ROWS: Final = 8_192


class PartitionMachine(PartitionState):
    """A partition with its detectors.

    Parameters
    ----------
    config, identity
        Settings; cluster and partition for the records.
    anchor
        Where the log is entered, and the clock there.
    floor_ns
        Results before this time are in published windows of another length.
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
        # When detectors next forget what is old. Nothing published depends on it.
        self._forget_old_ns = 0
        # Since when few of the rows that there is room for are used; None: not so.
        self._roomy_since_ns: int | None = None
        self.detection = Detection(
            config, identity.cluster, self.recent, self._first_open, detectors
        )

    @property
    def lookback(self) -> Anchor:
        """Where a restart at this point must begin to read."""
        return self.anchors.start(self.clock, self.agents.needed_ns(self.clock.active_ns))

    @property
    def closed_ns(self) -> int:
        """Event time up to which windows of the agent that is furthest are closed."""
        return self.agents.closed_ns

    def history_starts_ns(self) -> tuple[int, int]:
        """Return since which arrivals `restore` needs published windows and anomalies."""
        # Clearings within the look-back windows, and the last refresh.
        span_ns = (self.config.lookback_windows + 4) * self.config.window_ns + 2 * REFRESH_STEP_NS
        return self._published_since(self.detection.history_ns), self._published_since(span_ns)

    @property
    def lookback_start_ns(self) -> int:
        """Arrival since which `rebuild` needs published windows."""
        return self._published_since(self.detection.lookback_ns)

    def _published_since(self, span_ns: int) -> int:
        """Return when the first windows of such a span of event time were closed, at the latest.

        For agents whose clocks run at the right speed, whatever they say.
        """
        closed_ns = (self.clock.arrival_ns or 0) - max_open_ns(self.config) - REFRESH_STEP_NS
        return max(closed_ns - span_ns, 0)

    @property
    def open_anomalies(self) -> int:
        """Number of open anomalies."""
        return len(self.detection)

    @property
    def roomy(self) -> bool:
        """Whether there is room for many 5-tuples that are gone, also from the look-back.

        Rows have their places for as long as the machine lives; one that is rebuilt from the
        look-back has room for those that are left.
        """
        since_ns = self._roomy_since_ns
        read_ns = agents_horizon_ns(self.config) + ANCHOR_STEP_NS
        return since_ns is not None and self.clock.active_ns - since_ns > read_ns

    @property
    def progress_at(self) -> int | None:
        """Last grid point passed, microseconds; None before the first round."""
        return None if self.clock.arrival_ns is None else self.clock.grid_ns // US_NS

    def process(
        self,
        datum: dict[str, Any],
        offset: int,
        arrival_ns: int | None = None,
        columns: RoundColumns | None = None,
    ) -> list[Output]:
        """Process the round at `offset`; return what is published of it, in order.

        Parameters
        ----------
        datum
            As decoded; with `columns` it need not hold the results.
        arrival_ns
            When the broker took it; None: not known, then the time of its latest probe counts.
        columns
            The datum as columns, where the caller has them already.

        Raises
        ------
        RefusedRoundError
            If the round cannot count; the state knows it was there.
        """
        step = observe_round(self, datum, offset, arrival_ns, columns)
        return [] if step is None else self._finish_round(step)

    def process_plain(
        self, block: Block, at: int, arrivals_ns: Int64s, offset_of: Callable[[int], int]
    ) -> tuple[int, list[Output]]:
        """Process plain rounds from number `at` of a block on.

        Whether a round goes through here or through `process` changes no output.

        Parameters
        ----------
        arrivals_ns
            When each round of the block arrived; negative: not known.
        offset_of
            Gives the offset in the log of a round of the block.

        Returns
        -------
        int
            The first round that is not plain; the block's length if all are plain.
        list of Output
            What the rounds publish, in order.
        """
        outputs: list[Output] = []
        for entered in self._plain.observe(block, at, arrivals_ns, offset_of, self.detection):
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
        outputs = [anomaly_output(a) for a in anomalies]
        if _crossed(step.before, self.clock, PROGRESS_STEP_NS) is not None:
            outputs += self._pass_grid(step.before)
        elif step.crowded:
            # A backlog comes faster than the grid is passed.
            outputs += self._close_windows(overdue=False)
        for output in outputs:
            record = output.record
            if isinstance(record, Anomaly) and record.kind is not AnomalyKind.PROGRESS:
                self.tally.add_anomaly(record)
        return outputs

    def _pass_grid(self, before: ClockState) -> list[Output]:
        """Return what is published as arrival passes a point of the progress grid."""
        refresh_ns = _crossed(before, self.clock, REFRESH_STEP_NS)
        outputs = self._close_windows(overdue=refresh_ns is not None)
        if refresh_ns is not None:
            if self.live:
                anomalies = self.detection.refresh(refresh_ns, self.clock.active_ns, self._now_ns)
                outputs += [anomaly_output(a) for a in anomalies]
            self._forget()
        if self.live:
            grid_ns = self.clock.grid_ns
            outputs += [anomaly_output(a) for a in self.detection.observe_time(grid_ns)]
            outputs.append(anomaly_output(self._progress(grid_ns)))
        return outputs

    def _close_windows(self, *, overdue: bool) -> list[Output]:
        """Close the windows that their agents' clocks have passed; return what is published.

        With `overdue` also those that have been open for too long.
        """
        if not (self.agents.closable or overdue):
            return []
        numbers, after = self.agents.due(self.clock.active_ns, overdue=overdue)
        self.agents.closable = False
        if not self.live:
            self.windows.drop(numbers, after, self.clock.active_ns)
            return []
        names = [self.agents.table.key(number) for number in numbers.tolist()]
        moved = {
            name: (first, last)
            for name, first, last in zip(
                names,
                self.agents.table["first_open"][numbers].tolist(),
                after.tolist(),
                strict=True,
            )
        }
        closed = self.windows.close(numbers, after, self.clock.active_ns)
        outputs = self._publish_closed(closed)
        outputs += [anomaly_output(a) for a in self.detection.observe_closed(moved)]
        return outputs

    def _publish_closed(self, closed: list[ClosedWindow]) -> list[Output]:
        """Return windows, unless they go elsewhere, and what detectors see in them."""
        outputs: list[Output] = []
        closed_ms = self.clock.grid_ns // MS_NS
        for window in closed:
            batch = window_batch(
                window, self.recent, self.identity.cluster, self.config.window_ns, closed_ms
            )
            self.counts["windows"] += len(batch)
            if self.window_sink is not None:
                self.window_sink(batch)
            elif self._publish_windows:
                outputs += [window_output(record, closed_ms) for record in batch.records()]
            judged = self.detection.observe_windows(window.index, batch)
            outputs += [anomaly_output(a) for a in judged]
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
        self.detection.expect(earlier, self._now_ns)

    def add_earlier(self, part: WindowColumns) -> None:
        """Add expected windows, in order, all of one reader; from one other thread."""
        self.detection.add_earlier(part)

    def _progress(self, grid_ns: int) -> Anomaly:
        return progress(
            self.identity.cluster, self.identity.partition, AnomalyState.ONGOING, grid_ns // US_NS
        )

    def _forget(self) -> None:
        """Forget the probes of 5-tuples that fell silent, and what is too old for detectors."""
        for row in self.forget_silent(self.clock.active_ns - retire_ns(self.config)):
            self.detection.forget_row(row)
        flows = self.recent.flows
        if flows.capacity < ROOMY * max(len(flows), FEW_ROWS):
            self._roomy_since_ns = None
        elif self._roomy_since_ns is None:
            self._roomy_since_ns = self.clock.active_ns
        if self.clock.active_ns >= self._forget_old_ns:
            self._forget_old_ns = self.clock.active_ns + self.config.window_ns
            self.detection.forget_old()

    def _first_open(self, agent: str) -> int:
        """Return the index of an agent's first open window."""
        return self.agents.first_open(agent, self.clock.arrival_ns or 0)

    def _now_ns(self, agent: str) -> int:
        """Return the present time by an agent's clock."""
        return self.agents.now_ns(agent, self.clock)


def _crossed(before: ClockState, after: ClockState, step_ns: int) -> int | None:
    """Return the last grid point that arrival has passed by this round."""
    if after.arrival_ns is None:
        return None
    grid_ns = after.arrival_ns // step_ns * step_ns
    if before.arrival_ns is not None and before.arrival_ns >= grid_ns:
        return None
    return grid_ns
