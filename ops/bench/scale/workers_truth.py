"""What workers published against what was published to them: each 5-tuple and window once. Pure.

The truth is the log of rounds itself, read back. A round is one by its agent, incarnation and
number; a probe belongs to the window of its sending time.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.units import US_NS


class Window(NamedTuple):
    """A 5-tuple's window."""

    agent: str
    src: str
    dst: str
    flow: int
    start_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a comparison, in results.

    Attributes
    ----------
    published : results of windows that must be there
    lost : of these, in no window
    double : in more than one window, or in one that counts more than there was
    windows : windows that must be there
    """

    published: int
    lost: int
    double: int
    windows: int


@dataclass
class Truth:
    """Rounds and windows, by partition, as they are read.

    Parameters
    ----------
    window_ns, lateness_ns
        As the workers have them. A window is due once its partition has a round that begins
        so long after its end.
    """

    window_ns: int
    lateness_ns: int
    _rounds: set[tuple[str, int, int]] = field(default_factory=set)
    _sent: Counter[Window] = field(default_factory=Counter)
    _partition: dict[str, int] = field(default_factory=dict)
    _latest_us: dict[int, int] = field(default_factory=dict)
    _counted: Counter[Window] = field(default_factory=Counter)
    _again: Counter[Window] = field(default_factory=Counter)
    duplicates: int = 0

    def round(self, datum: Mapping[str, Any], partition: int) -> None:
        """Take a round, a decoded datum."""
        agent, at_us = datum["agent_id"], datum["started_at"]
        self._partition[agent] = partition
        self._latest_us[partition] = max(self._latest_us.get(partition, 0), at_us)
        name = (agent, datum["incarnation"], datum["round_seq"])
        if name in self._rounds:
            self.duplicates += 1
            return
        self._rounds.add(name)
        window_ns = self.window_ns
        for result in datum["results"]:
            sent_ns = at_us * US_NS + result["sent_offset_ns"]
            start_us = sent_ns // window_ns * window_ns // US_NS
            self._sent[Window(agent, result["src"], result["dst"], result["flow"], start_us)] += 1

    def window(self, datum: Mapping[str, Any]) -> None:
        """Take a published window, a decoded datum."""
        name = Window(
            datum["agent_id"], datum["src"], datum["dst"], datum["flow"], datum["window_start_at"]
        )
        if name in self._counted:
            self._again[name] += datum["sent"]
        else:
            self._counted[name] = datum["sent"]

    def verdict(self) -> Verdict:
        """Compare; windows that are not due yet are left out on both sides."""
        due = {
            name: sent
            for name, sent in self._sent.items()
            if name.start_us + (self.window_ns + self.lateness_ns) // US_NS
            < self._latest_us[self._partition[name.agent]]
        }
        more = sum(max(0, n - self._sent[name]) for name, n in self._counted.items())
        return Verdict(
            published=sum(due.values()),
            lost=sum(max(0, sent - self._counted[name]) for name, sent in due.items()),
            double=more + self._again.total(),
            windows=len(due),
        )
