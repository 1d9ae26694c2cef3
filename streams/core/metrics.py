"""Counters of the worker, logged as one event every few seconds."""

from collections import Counter
from typing import Final, Literal, get_args

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
    "anomalies",
    "already_published",
    "commits",
    "commit_errors",
    "sessions_lost",
    "endpoints_registered",
    "endpoints_left",
]
NAMES: Final[tuple[Metric, ...]] = get_args(Metric)


class Metrics:
    """Totals since the start of the process.

    `rounds` counts accepted rounds, duplicates among them; `results` all their
    results but the duplicate ones, the late among them; what stands between
    them and the windows is `late`. `rounds_alone` counts the messages that no kernel took.
    """

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter(dict.fromkeys(NAMES, 0))

    def add(self, name: Metric, count: int = 1) -> None:
        """Count."""
        self._totals[name] += count

    def move_from(self, counts: Counter[str]) -> None:
        """Add a partition's counts, and empty them.

        Raises
        ------
        KeyError
            If a count has a name that no metric has.
        """
        unknown = set(counts) - set(NAMES)
        if unknown:
            raise KeyError(f"no metrics {sorted(unknown)}")
        self._totals.update(counts)
        counts.clear()

    def totals(self) -> dict[str, int]:
        """Return all totals by name."""
        return {name: self._totals[name] for name in NAMES}
