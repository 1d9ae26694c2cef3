"""What the worker counts: by partition while it processes, together for logs and metrics."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from schemas.records import Anomaly
from streams.columns.outcomes import OutcomeArrays, move_outcomes, no_outcomes

Metric = Literal[
    "batches",
    "rounds",
    "rounds_alone",
    "results",
    "late",
    "duplicate",
    "undecodable",
    "foreign",
    "invalid",
    "clock_ahead",
    "beyond_limits",
    "windows",
    "already_published",
    "commits",
    "commit_errors",
    "sessions_lost",
]
NAMES: Final[tuple[Metric, ...]] = get_args(Metric)
# What a round that goes to the dead letters is counted as.
REFUSALS: Final[tuple[Metric, ...]] = (
    "undecodable", "foreign", "invalid", "clock_ahead", "beyond_limits",
)  # fmt: skip


class AnomalySort(NamedTuple):
    """What records of anomalies are counted by."""

    detector: str
    state: str


@dataclass(slots=True)
class Tally:
    """What was counted since somebody took it.

    Attributes
    ----------
    counts
        By name; `rounds` counts accepted rounds, duplicates among them; `results` all their
        results but the duplicate ones, the late among them; what stands between them and the
        windows is `late`. `rounds_alone` counts the messages that no kernel took.
    outcomes
        Results by what became of the probe.
    anomalies
        Published records of anomalies.
    latest
        Of each sort of them, the agent whose 5-tuple the latest was of.
    """

    counts: Counter[str] = field(default_factory=Counter)
    outcomes: OutcomeArrays = field(default_factory=no_outcomes)
    anomalies: Counter[AnomalySort] = field(default_factory=Counter)
    latest: dict[AnomalySort, str] = field(default_factory=dict)

    def add_anomaly(self, anomaly: Anomaly) -> None:
        """Count a record."""
        sort = AnomalySort(anomaly.detector, anomaly.state.value)
        self.anomalies[sort] += 1
        self.latest[sort] = anomaly.agent_id


class Metrics:
    """Totals since the start of the process."""

    def __init__(self) -> None:
        self.total = Tally(Counter(dict.fromkeys(NAMES, 0)))

    def add(self, name: Metric, count: int = 1) -> None:
        """Count."""
        self.total.counts[name] += count

    def move_from(self, tally: Tally) -> None:
        """Add a partition's counts, and empty them.

        Raises
        ------
        KeyError
            If a count has a name that no metric has.
        """
        unknown = set(tally.counts) - set(NAMES)
        if unknown:
            raise KeyError(f"no metrics {sorted(unknown)}")
        self.total.counts.update(tally.counts)
        move_outcomes(tally.outcomes, self.total.outcomes)
        self.total.anomalies.update(tally.anomalies)
        self.total.latest.update(tally.latest)
        for taken in (tally.counts, tally.anomalies, tally.latest):
            taken.clear()

    def totals(self) -> dict[str, int]:
        """Return all totals by name."""
        counts = self.total.counts
        return {name: counts[name] for name in NAMES} | {"anomalies": self.total.anomalies.total()}
