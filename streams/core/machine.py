"""The state machine of one partition: rounds in, windows, anomalies and progress marks out.

Every output is a function of the partition's log alone: of event times, never of
the clock on the wall, of batches or of restarts. For each round, in this order:
what its probes show; windows that its time closes and what they show; on the
refresh grid, the open anomalies once more; on the progress grid, how far the
partition is decided.

While it is not `live`, rounds have an effect on the state only: a restart gives the
machine the look-back so, then the published tail by `restore`, or by `rebuild` and `expect`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from schemas.columns.arrays import Bools, Int64s
from schemas.enums import AnomalyKind, AnomalyState
from schemas.records import Anomaly, PathWindow
from schemas.units import US_NS
from streams.columns.rounds import NEVER_NS, RoundColumns, round_columns
from streams.config import PROGRESS_STEP_NS, REFRESH_STEP_NS, DetectionConfig
from streams.core.anchors import Anchor, Anchors, horizon_ns, retire_ns
from streams.core.board import Alarm, Board
from streams.core.clock import ClockState, SeenRounds, step
from streams.core.long_term import Earlier
from streams.core.metrics import Metric
from streams.core.outputs import (
    Output,
    anomaly_output,
    progress,
    window_output,
)
from streams.core.probe_alarms import ProbeAlarms
from streams.core.published import WindowColumns, columns_of
from streams.core.recent import RecentProbes
from streams.core.window_alarms import WindowAlarms
from streams.core.window_records import WindowBatch, window_batch
from streams.core.windows import ClosedWindow, Windows

START: Final = ClockState()


class RefusedRoundError(ValueError):
    """A round that goes to the dead letters; `counter` names what is counted."""

    def __init__(self, counter: Metric, reason: str) -> None:
        self.counter = counter
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose outputs these are."""

    cluster: str
    partition: int


class PartitionMachine:
    """State of one partition.

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

    Attributes
    ----------
    windows_to
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
    ) -> None:
        self.config = config
        self._publish_windows = publish_windows
        self.windows_to: Callable[[WindowBatch], None] | None = None
        self.live = True
        self.identity = identity
        self.clock = anchor.clock
        self.counts: Counter[str] = Counter()
        self.anchors = Anchors(horizon_ns(config), anchor)
        self.seen = SeenRounds(horizon_ns(config))
        self.windows = Windows(config.window_ns, floor_ns)
        self.recent = RecentProbes(anchor.clock.reach_ns)
        self._board = Board(identity.cluster)
        self._window_alarms = WindowAlarms(config, self._board, self.recent.flows)
        if anchor.clock.watermark_ns is not None:
            self.windows.close(anchor.clock.watermark_ns - config.lateness_ns)
        self._first_open = self.windows.first_open
        self._probe_alarms = ProbeAlarms(
            config,
            self.recent,
            self._board,
            lambda key: self._window_alarms.baseline_p50_ns(key, self.windows.first_open),
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
        windows_ns = self.closed_ns - self._window_alarms.history_ns
        # Clearings within the look-back windows, and the last refresh.
        span_ns = (config.lookback_windows + 4) * config.window_ns + 2 * REFRESH_STEP_NS
        return max(windows_ns, 0), max(self.closed_ns - span_ns, 0)

    @property
    def lookback_start_ns(self) -> int:
        """Event time from which on `rebuild` needs published windows."""
        return max(self.closed_ns - self._window_alarms.lookback_ns, 0)

    @property
    def open_anomalies(self) -> int:
        """Number of open anomalies."""
        return len(self._board)

    @property
    def progress_at(self) -> int | None:
        """Last grid point passed, microseconds; None before the first round."""
        if self.clock.watermark_ns is None:
            return None
        return self.clock.reach_ns // PROGRESS_STEP_NS * PROGRESS_STEP_NS // US_NS

    def process(
        self, datum: dict[str, Any], offset: int, columns: RoundColumns | None = None
    ) -> list[Output]:
        """Take the round at `offset`; return what it makes known, in order.

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
        before = self.clock
        self._board.next_round()
        taken = self._take(datum, offset, columns)
        if taken is None:
            return []
        anomalies, closed = taken
        return self._told(before, anomalies, closed)

    def on_round(
        self, before: ClockState, rows: Int64s, sent_ns: Int64s, ok: Bools, before_ns: Int64s
    ) -> list[Output]:
        """Return what a round makes known that is in windows and rings already.

        For a caller that takes rounds in itself (`streams.columnar`), as the two methods below.

        Parameters
        ----------
        before
            The clock before the round.
        rows, sent_ns, ok, before_ns
            Its results that are to be looked at, as `ProbeAlarms.on_results` takes them: all
            of a 5-tuple that lost a probe in it or is watched.
        """
        self._board.next_round()
        anomalies = self._probe_alarms.on_results(rows, sent_ns, ok, before_ns, live=self.live)
        watermark_ns = self.clock.watermark_ns or 0
        closed = self.windows.close(watermark_ns - self.config.lateness_ns)
        return self._told(before, anomalies, closed)

    def answered(self, rows: Int64s, sent_ns: Int64s, before_ns: Int64s) -> None:
        """Note answers of watched 5-tuples, while no anomaly is open."""
        if len(rows):
            ok = np.ones(len(rows), np.bool_)
            self._probe_alarms.on_results(rows, sent_ns, ok, before_ns, live=False)

    def passed(self, grid_ns: Iterable[int]) -> list[Output]:
        """Return the progress marks of grid points that were passed while no anomaly was open."""
        if not self.live:
            return []
        return [anomaly_output(self._progress(point)) for point in grid_ns]

    def _told(
        self, before: ClockState, anomalies: list[Anomaly], closed: list[ClosedWindow]
    ) -> list[Output]:
        """Return what a round makes known: by its probes, its windows, its time."""
        if not self.live:
            self._retire(before)
            self._first_open = self.windows.first_open
            return []
        outputs = [anomaly_output(a) for a in anomalies]
        for window in closed:
            batch = window_batch(window, self.recent, self.identity.cluster, self.config.window_ns)
            self.counts["windows"] += len(batch)
            if self.windows_to is not None:
                self.windows_to(batch)
            elif self._publish_windows:
                outputs += [window_output(r) for r in batch.records()]
            judged = self._window_alarms.on_windows(window.index, batch)
            outputs += [anomaly_output(a) for a in judged]
        first_open = self.windows.first_open
        trends = self._window_alarms.on_closed(self._first_open, first_open)
        self._first_open = first_open
        outputs += [anomaly_output(a) for a in [*trends, *self._on_time(before)]]
        self.counts["anomalies"] += sum(
            isinstance(o.record, Anomaly) and o.record.kind is not AnomalyKind.PROGRESS
            for o in outputs
        )
        return outputs

    def restore(self, windows: Iterable[PathWindow], anomalies: Iterable[Anomaly]) -> None:
        """After the look-back, set what the published tail says was decided.

        Parameters
        ----------
        windows
            Published windows since the first of `history_starts_ns`, in order.
        anomalies
            Published anomalies since the second, in order.
        """
        self._rebuild([columns_of(list(windows))], anomalies, long_term=True)

    def rebuild(self, parts: Iterable[WindowColumns], anomalies: Iterable[Anomaly]) -> None:
        """Do the same but for the long-term test, whose windows `expect` announces.

        Parameters
        ----------
        parts
            Published windows since `lookback_start_ns`, in order, all of one reader.
        anomalies
            As for `restore`.
        """
        self._rebuild(parts, anomalies, long_term=False)

    def _rebuild(
        self, parts: Iterable[WindowColumns], anomalies: Iterable[Anomaly], *, long_term: bool
    ) -> None:
        told = list(anomalies)
        self._board.restore(told)
        self._window_alarms.rebuild(parts, told, self.windows.first_open, long_term=long_term)

    def expect(self, earlier: Earlier) -> None:
        """After `rebuild`, let the long-term test wait for the windows that go to `add_earlier`.

        They begin with the first of `history_starts_ns`, and end where new ones begin. It waits
        when a block ends; rarely here, for what an open anomaly has to say.
        """
        self._window_alarms.expect(earlier, self.windows.first_open, self.clock.watermark_ns or 0)

    def add_earlier(self, part: WindowColumns) -> None:
        """Take windows that are expected, in order, all of one reader; from one other thread."""
        self._window_alarms.add_earlier(part)

    def _take(
        self,
        datum: dict[str, Any],
        offset: int,
        columns: RoundColumns | None,
    ) -> tuple[list[Anomaly], list[ClosedWindow]] | None:
        """Update the state by a round; None for a duplicate."""
        self.anchors.note(offset, self.clock)
        if datum["cluster"] != self.identity.cluster:
            raise RefusedRoundError(
                "foreign", f"cluster {datum['cluster']!r} instead of {self.identity.cluster!r}"
            )
        columns = columns or self._columns(datum)
        clock, accepted = step(self.clock, datum["agent_id"], columns.started_ns, columns.reach_ns)
        if not accepted:
            self.clock = clock
            raise RefusedRoundError(
                "clock_ahead", f"started_at={datum['started_at']} is not confirmed by others"
            )
        self.counts["rounds"] += 1
        watermark_ns = clock.watermark_ns or 0
        identity = (
            datum["agent_id"], datum["incarnation"], datum["round_seq"], columns.started_ns
        )  # fmt: skip
        if self.seen.seen_before(identity, watermark_ns):
            self._repeat(columns)
            return None
        self.clock = clock
        self.recent.advance(self.clock.reach_ns)
        anomalies = self._probes(columns)
        return anomalies, self.windows.close(watermark_ns - self.config.lateness_ns)

    @staticmethod
    def _columns(datum: dict[str, Any]) -> RoundColumns:
        try:
            return round_columns(datum)
        except ValueError as error:
            raise RefusedRoundError("invalid", str(error)) from error

    def _repeat(self, columns: RoundColumns) -> None:
        self.counts["duplicate"] += columns.count
        rows, here = self.recent.known_rows(columns.keys)
        self.windows.add_repeats(rows, columns.sent_ns[here])

    def _probes(self, columns: RoundColumns) -> list[Anomaly]:
        """Take the results that come in time into windows and rings."""
        if not columns.count:
            return []
        rows = self.recent.rows(columns.keys)
        timely = self.windows.add(rows, columns)
        self.counts["results"] += columns.count
        self.counts["late"] += columns.count - int(timely.sum())
        before_ns: Int64s = self.recent.flows["last_ns"][rows]
        self.recent.add(columns, rows, timely)
        return self._probe_alarms.on_results(
            rows[timely],
            columns.sent_ns[timely],
            columns.ok[timely],
            before_ns[timely],
            live=self.live,
        )

    def _on_time(self, before: ClockState) -> list[Anomaly]:
        """Return what the passing of time brings: refreshes, clearings, a progress mark."""
        anomalies: list[Anomaly] = []
        grid_ns = _crossed(before, self.clock, REFRESH_STEP_NS)
        if grid_ns is not None:
            anomalies += self._refresh(grid_ns)
            self._retire(before)
        grid_ns = _crossed(before, self.clock, PROGRESS_STEP_NS)
        if grid_ns is not None:
            anomalies += self._probe_alarms.on_grid(grid_ns)
            anomalies.append(self._progress(grid_ns))
        return anomalies

    def _progress(self, grid_ns: int) -> Anomaly:
        return progress(
            self.identity.cluster, self.identity.partition, AnomalyState.ONGOING, grid_ns // US_NS
        )

    def _refresh(self, grid_ns: int) -> list[Anomaly]:
        """Repeat the open anomalies; clear those of 5-tuples that are no longer probed."""
        # Until the next refresh a restart may begin to read up to so much later than now.
        known_ns = self.history_starts_ns()[1] + 2 * self.config.window_ns
        return [
            self._silenced(alarm, grid_ns)
            if self._last_ns(alarm) < grid_ns - self.config.idle_ns
            else self._board.repeat(self._renewed(alarm), grid_ns)
            for alarm in self._board.due(known_ns)
        ]

    def _silenced(self, alarm: Alarm, grid_ns: int) -> Anomaly:
        if alarm.kind is AnomalyKind.LATENCY:
            self._window_alarms.silenced(alarm.key, grid_ns)
        return self._board.clear(alarm, grid_ns, replace(alarm.evidence, value=None))

    def _renewed(self, alarm: Alarm) -> Alarm:
        if alarm.kind in (AnomalyKind.CONNECTIVITY, AnomalyKind.LOSS):
            return self._probe_alarms.refreshed(alarm)
        return alarm

    def _last_ns(self, alarm: Alarm) -> int:
        row = self.recent.flows.find(alarm.key)
        return NEVER_NS if row is None else int(self.recent.flows["last_ns"][row])

    def _retire(self, before: ClockState) -> None:
        """On the refresh grid, forget the probes of 5-tuples that fell silent.

        By the watermark, which may stay behind the grid: it is what closes windows.
        """
        grid_ns = _crossed(before, self.clock, REFRESH_STEP_NS)
        if grid_ns is not None:
            now_ns = min(grid_ns, self.clock.watermark_ns or 0)
            for row in self.recent.retire(now_ns - retire_ns(self.config)):
                self._probe_alarms.drop(row)


def _crossed(before: ClockState, after: ClockState, step_ns: int) -> int | None:
    """Return the last grid point that the partition's reach has passed by this round."""
    if after.watermark_ns is None:
        return None
    grid_ns = after.reach_ns // step_ns * step_ns
    if before.watermark_ns is not None and before.reach_ns >= grid_ns:
        return None
    return grid_ns
