"""What a detector is: batches of results or of closed windows in, decisions out.

Every detector decides on one kind of anomaly, for each 5-tuple by itself. There are three families,
by what they observe: `ProbeDetector` the results of single rounds, `MomentDetector`
(`streams.detectors.moments`) the last answers, `WindowDetector` the features of closed windows. A
detector keeps its open anomalies; the machine turns its decisions into records
(`streams.core.detection`).

To add one: write a module in this package with a subclass of one of them; the registry
(`streams.detectors.registry`) finds it. A new kind of anomaly is also a symbol of `AnomalyKind`
with its family, and a version of the schema; CONTRIBUTING has the recipe.
`tests/unit/streams/detectors/test_detectors_conformance.py` tests each class of the registry.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from schemas.columns.arrays import Bools, Floats, Int64s
from schemas.enums import AnomalyKind, AnomalyState, Transport
from schemas.records import Anomaly
from schemas.transports import CAPABILITIES
from schemas.units import US_NS
from streams.columns.quantities import OBSERVED
from streams.columns.rounds import FlowKey
from streams.columns.table import Table
from streams.config import DetectionConfig
from streams.detectors.recent import RecentProbes

# Least answers in a window that detectors observe: with fewer there are no quartiles.
MIN_ANSWERS: Final = 4
# Columns of the features of a window.
P25: Final = 0
P50: Final = 1
P75: Final = 2
MIN: Final = 3
MAX: Final = 6

# Later than every second.
FOREVER_S: Final = 2**62
# Gives the median round trip of a 5-tuple's look-back windows, None without one.
Baseline = Callable[[FlowKey], int | None]
# Gives the index of an agent's first open window.
FirstOpen = Callable[[str], int]
# By agent, the index of its first open window before some of its windows closed, and now.
Moved = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a record says about an anomaly beside who, when and what."""

    value: float | None = None
    reference: float | None = None
    threshold: float | None = None
    sent: int = 0
    lost: int = 0
    rtt_p50_ns: int | None = None
    baseline_p50_ns: int | None = None
    host_delay_ns: int | None = None
    host_delay_baseline_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAnomaly:
    """An anomaly that has not ended; `onset_at` in microseconds, as in the record."""

    key: FlowKey
    onset_at: int
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Decision:
    """An anomaly begins (ONSET), lasts (ONGOING) or ends (CLEARED) at an event time."""

    state: AnomalyState
    anomaly: OpenAnomaly
    event_ns: int


@dataclass(frozen=True, slots=True)
class FalseAlarmRate:
    """Upper bound of false onsets in a healthy network; `per` names what it is counted over."""

    rate: float
    per: str


@dataclass(frozen=True, slots=True)
class ResultBatch:
    """Results in the order of their rounds: at least all of 5-tuples that lose or lost a probe.

    Results of other 5-tuples may be missing, since a kernel only counts them. A 5-tuple is
    watched while a detector has set `watched` in `RecentProbes.flows`.

    Attributes
    ----------
    rows : (n,) int64
        Rows of the 5-tuples in `RecentProbes.flows`.
    sent_ns : (n,) int64
        Sending time of each probe, by its agent's clock.
    active_ns : (n,) int64
        Active time at which its round arrived (`streams.core.clock`).
    ok : (n,) bool
        Whether it was answered.
    before_ns : (n,) int64
        Active time of the 5-tuple's latest result before the round, `NEVER_NS` for none.
    """

    rows: Int64s
    sent_ns: Int64s
    active_ns: Int64s
    ok: Bools
    before_ns: Int64s


class FlowNumbers(Protocol):
    """Numbers that stand for 5-tuples in feature batches of one source."""

    def key(self, number: int) -> FlowKey:
        """Return the 5-tuple of a number."""
        ...

    def numbers_of(self, keys: Iterable[FlowKey]) -> list[int]:
        """Return the numbers of those 5-tuples that have one."""
        ...

    def rows(self, table: Table[FlowKey], numbers: Int64s, *, create: bool) -> Int64s:
        """Return their rows in a table; missing ones are created, or `NO_ROW`."""
        ...


@dataclass(frozen=True, slots=True)
class FeatureBatch:
    """Closed windows of one index and different 5-tuples, each with `MIN_ANSWERS` or more.

    Attributes
    ----------
    index
        Start of the windows in units of their length.
    flows
        Gives the 5-tuples of the numbers.
    numbers : (n,) int64
        Whose windows these are.
    features_ns : (n, 7) int64
        `streams.columns.quantities.FEATURES`.
    sent, answers : (n,) int64
        Probes of the window, and how many were answered.
    medians_ns : (n, len(OBSERVED)) int64
        Medians of other quantities (`streams.columns.quantities.OBSERVED`); negative: not
        measured.
    transports : (n,) integers
        Places in `streams.columns.rounds.TRANSPORTS`.
    """

    index: int
    flows: FlowNumbers
    numbers: Int64s
    features_ns: Int64s
    sent: Int64s
    answers: Int64s
    medians_ns: Int64s
    transports: NDArray[np.integer]
    # Rows of all its 5-tuples in tables that have them.
    _rows: dict[Table[FlowKey], Int64s] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __len__(self) -> int:
        return len(self.numbers)

    def key(self, place: int) -> FlowKey:
        """Return the 5-tuple of a window."""
        return self.flows.key(int(self.numbers[place]))

    def median_ns(self, name: str, place: int) -> int | None:
        """Return a median of a window by its field of `probe.window.v1`, None: not measured."""
        value = int(self.medians_ns[place, OBSERVED.index(name)])
        return None if value < 0 else value

    def rows(self, table: Table[FlowKey], *, create: bool = False) -> Int64s:
        """Return the rows of the 5-tuples in a detector's table, `NO_ROW` for those without."""
        known = self._rows.get(table)
        if known is None:
            known = self.flows.rows(table, self.numbers, create=create)
            if create:
                self._rows[table] = known
        return known

    def of_keys(self, keys: Iterable[FlowKey]) -> Bools:
        """Mark the windows of some 5-tuples."""
        # Sorting, which numpy prefers where memory is dear, takes twenty times as long.
        wanted = np.array(self.flows.numbers_of(keys), np.int64)
        return np.isin(self.numbers, wanted, kind="table")

    def select(self, which: Bools | Int64s) -> Self:
        """Return some of the windows, in their order."""
        return replace(
            self,
            numbers=self.numbers[which],
            features_ns=self.features_ns[which],
            sent=self.sent[which],
            answers=self.answers[which],
            medians_ns=self.medians_ns[which],
            transports=self.transports[which],
        )


def least_effect_ns(config: DetectionConfig, transport: Transport) -> int:
    """Return the absolute rise below which no change of a window of that transport counts."""
    capabilities = CAPABILITIES.get(transport)
    bypasses = capabilities is not None and capabilities.kernel_bypass
    return config.effect_rdma_ns if bypasses else config.effect_ns


def least_effects_ns(config: DetectionConfig) -> Floats:
    """Return the same of each transport, in the order of `TRANSPORTS`."""
    return np.array([least_effect_ns(config, t) for t in Transport], np.float64)


class Detector(ABC):
    """A test of 5-tuples for one kind of anomaly, and the anomalies that it has open.

    What a detector keeps must be a function of the results of the last minutes, or of the
    published windows and anomalies: a restart rebuilds it from them (`streams.core.anchors`).

    Attributes
    ----------
    kind
        What it detects; no two detectors have the same.
    name, unit
        `detector` and `unit` of its records.
    reference
        Where the method is published.
    open
        Its open anomalies by 5-tuple.
    """

    kind: ClassVar[AnomalyKind]
    name: ClassVar[str]
    unit: ClassVar[str]
    reference: ClassVar[str]

    def __init__(self, config: DetectionConfig) -> None:
        self.config = config
        self.open: dict[FlowKey, OpenAnomaly] = {}

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of 5-tuples that the detector keeps state of."""

    @classmethod
    @abstractmethod
    def false_alarms(cls, config: DetectionConfig) -> FalseAlarmRate:
        """Return the rate of false onsets that the settings accept."""

    def open_in_order(self) -> list[OpenAnomaly]:
        """Return the open anomalies in an order that depends on their 5-tuples only."""
        return sorted(self.open.values(), key=lambda anomaly: (anomaly.key[1:], anomaly.key[0]))

    def current_evidence(self, anomaly: OpenAnomaly) -> Evidence:
        """Return what a record says now; as last observed unless a detector knows better."""
        return anomaly.evidence

    def repeat(self, key: FlowKey, event_ns: int) -> Decision:
        """Return that an anomaly lasts, with its current evidence."""
        anomaly = self.open[key]
        return Decision(
            AnomalyState.ONGOING, self._update(anomaly, self.current_evidence(anomaly)), event_ns
        )

    def end_by_silence(self, key: FlowKey, event_ns: int) -> Decision:
        """End an anomaly of a 5-tuple that is no longer probed; its record has no value."""
        anomaly = self.open[key]
        return self._end(anomaly, event_ns, replace(anomaly.evidence, value=None))

    def restore(self, published: Sequence[Anomaly], first_open: FirstOpen) -> None:
        """After a restart, set the open anomalies from the tail of the topic.

        Parameters
        ----------
        published
            Anomalies of all kinds, in the topic's order.
        first_open
            First open windows of agents, for detectors that observe windows.
        """
        del first_open
        self.open.clear()
        for record in published:
            if record.kind is not self.kind:
                continue
            key = key_of(record)
            if record.state is AnomalyState.CLEARED:
                self.open.pop(key, None)
                continue
            evidence = Evidence(
                value=record.value,
                reference=record.reference,
                threshold=record.threshold,
                sent=record.sent,
                lost=record.lost,
                rtt_p50_ns=record.rtt_p50_ns,
                baseline_p50_ns=record.baseline_p50_ns,
                host_delay_ns=record.host_delay_ns,
                host_delay_baseline_ns=record.host_delay_baseline_ns,
            )
            self.open[key] = OpenAnomaly(key=key, onset_at=record.onset_at, evidence=evidence)

    def _begin(self, key: FlowKey, onset_ns: int, event_ns: int, evidence: Evidence) -> Decision:
        """Open an anomaly that began at `onset_ns` and is detected at `event_ns`."""
        anomaly = OpenAnomaly(key=key, onset_at=onset_ns // US_NS, evidence=evidence)
        self.open[key] = anomaly
        return Decision(AnomalyState.ONSET, anomaly, event_ns)

    def _update(self, anomaly: OpenAnomaly, evidence: Evidence) -> OpenAnomaly:
        """Change what the next records say."""
        if evidence is anomaly.evidence:
            return anomaly
        changed = OpenAnomaly(key=anomaly.key, onset_at=anomaly.onset_at, evidence=evidence)
        self.open[anomaly.key] = changed
        return changed

    def _end(
        self, anomaly: OpenAnomaly, event_ns: int, evidence: Evidence | None = None
    ) -> Decision:
        """Close an anomaly; without evidence, its last one stands in the record."""
        del self.open[anomaly.key]
        final = anomaly if evidence is None else replace(anomaly, evidence=evidence)
        return Decision(AnomalyState.CLEARED, final, event_ns)


class ProbeDetector(Detector):
    """Observes the results of rounds.

    A restart lets it observe the results of the look-back again, without decisions.

    Parameters
    ----------
    config
        Settings.
    recent
        Counts and losses of the last minute; it has a batch's results already.
    baseline_p50_ns
        What is usual for a 5-tuple.
    """

    def __init__(
        self, config: DetectionConfig, recent: RecentProbes, baseline_p50_ns: Baseline
    ) -> None:
        super().__init__(config)
        self.recent = recent
        self.baseline_p50_ns = baseline_p50_ns

    @abstractmethod
    def observe_results(self, results: ResultBatch, *, decide: bool) -> list[Decision]:
        """Observe results; return what they decide.

        Parameters
        ----------
        results
            Results of one round; without `decide`, of one or more.
        decide
            Whether to decide; else they have an effect on the state only.
        """

    def observe_time(self, grid_ns: int) -> list[Decision]:
        """Return what is decided as arrival passes a point of the progress grid."""
        del grid_ns
        return []

    @property
    def next_decision_s(self) -> int:
        """Active second before which `observe_time` decides nothing, if no results are observed.

        While no anomaly is open it never does.
        """
        return 0 if self.open else FOREVER_S

    def forget_row(self, row: int) -> None:
        """Forget a 5-tuple that was not probed for long, by its row in `recent`."""


class WindowDetector(Detector):
    """Observes the features of closed windows.

    Attributes
    ----------
    background_history
        The detector's history is too long to be read before work begins after a restart. It
        comes beside the work, and new windows wait for it. Such a detector decides in
        `observe_closed` only.
    """

    background_history: ClassVar[bool] = False

    @property
    @abstractmethod
    def history_ns(self) -> int:
        """How far back in event time published windows matter."""

    @property
    def windows_per_decision(self) -> int:
        """`observe_closed` decides when an agent has closed a block of so many; 0: never."""
        return 1

    @abstractmethod
    def observe_windows(self, windows: FeatureBatch) -> list[Decision]:
        """Observe closed windows, in the order of their indices; return what they decide."""

    def observe_closed(self, moved: Moved) -> list[Decision]:
        """Return what is decided as windows of some agents have closed."""
        del moved
        return []

    def forget_old(self, first_open: FirstOpen) -> None:
        """Forget 5-tuples whose windows are too old to matter."""
        del first_open

    def baseline_p50_ns(self, key: FlowKey, first_open: int) -> int | None:
        """Return the median round trip of a 5-tuple's look-back windows, None if not known."""
        del key, first_open
        return None

    @abstractmethod
    def restore_windows(self, windows: FeatureBatch) -> None:
        """After `restore`, observe published windows, in the order of the topic."""

    def end_restore(self, first_open: FirstOpen, newest: Sequence[FeatureBatch] = ()) -> None:
        """After all published windows, set what depends on them together.

        Parameters
        ----------
        first_open
            Index of the first open window of an agent.
        newest
            Of the published windows, those just before it.
        """
        del first_open, newest


def key_of(record: Anomaly) -> FlowKey:
    """Return the 5-tuple of a record."""
    return record.agent_id, record.src, record.dst, record.flow
