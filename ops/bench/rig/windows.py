"""Compares published windows with the rounds in the log: what is missing, doubled or wrong.

The log of rounds is the truth. Each 5-tuple and window must be published once: rounds are
identified by agent, incarnation and number, and a probe belongs to the window of its sending time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import Message

from schemas.codec import Codec, DecodeError
from schemas.enums import ProbeStatus
from schemas.kafka.connection import KafkaSettings
from schemas.topics import PROBE_ROUND, PROBE_WINDOW, Topic
from schemas.units import SECOND_NS, US_NS
from streams.config import CLOSING_SHARE
from streams.edge.lookback import LogReader

# Windows close on a grid of arrival, so a moment after the agent's clock has passed their end.
MARGIN_NS: Final = SECOND_NS


class Window(NamedTuple):
    """A 5-tuple's window."""

    agent: str
    src: str
    dst: str
    flow: int
    start_us: int


class Content(NamedTuple):
    """What a window must say: probes sent and answered, least and greatest RTT of the answered."""

    sent: int = 0
    ok: int = 0
    min_ns: int | None = None
    max_ns: int | None = None

    def with_result(self, result: Mapping[str, Any]) -> "Content":
        """Return it with one more result, a decoded datum."""
        if result["status"] != ProbeStatus.OK.value:
            return self._replace(sent=self.sent + 1)
        rtt_ns = result["rtt_ns"]
        least = rtt_ns if self.min_ns is None else min(self.min_ns, rtt_ns)
        greatest = rtt_ns if self.max_ns is None else max(self.max_ns, rtt_ns)
        return Content(self.sent + 1, self.ok + 1, least, greatest)


NOTHING: Final = Content()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a comparison.

    Attributes
    ----------
    published : results of windows that must be there
    lost : of these, in no window
    double : in more than one window, or in one that counts more than there was
    windows : windows that must be there
    missing_windows, doubled_windows : of these, published never, more than once
    wrong_windows : published once, with other content than the rounds have; or of no round at all
    """

    published: int
    lost: int
    double: int
    windows: int
    missing_windows: int
    doubled_windows: int
    wrong_windows: int


@dataclass
class Truth:
    """Rounds and windows as they are read.

    Parameters
    ----------
    window_ns, lateness_ns
        As the workers have them. A window is due once its agent has a round that begins so long
        after its end, the spread of closings later, and a moment more.
    """

    window_ns: int
    lateness_ns: int
    duplicates: int = 0
    _rounds: set[tuple[str, int, int]] = field(default_factory=set)
    _expected: dict[Window, Content] = field(default_factory=dict)
    _latest_us: dict[str, int] = field(default_factory=dict)
    _seen: dict[Window, Content] = field(default_factory=dict)
    _again: Counter[Window] = field(default_factory=Counter)
    _seen_again: set[Window] = field(default_factory=set)

    def observe_round(self, datum: Mapping[str, Any]) -> None:
        """Observe a round, a decoded datum."""
        agent, at_us = datum["agent_id"], datum["started_at"]
        self._latest_us[agent] = max(self._latest_us.get(agent, 0), at_us)
        name = (agent, datum["incarnation"], datum["round_seq"])
        if name in self._rounds:
            self.duplicates += 1
            return
        self._rounds.add(name)
        window_ns, expected = self.window_ns, self._expected
        for result in datum["results"]:
            sent_ns = at_us * US_NS + result["sent_offset_ns"]
            start_us = sent_ns // window_ns * window_ns // US_NS
            window = Window(agent, result["src"], result["dst"], result["flow"], start_us)
            expected[window] = expected.get(window, NOTHING).with_result(result)

    def observe_window(self, datum: Mapping[str, Any]) -> None:
        """Observe a published window, a decoded datum."""
        window = Window(
            datum["agent_id"], datum["src"], datum["dst"], datum["flow"], datum["window_start_at"]
        )
        if window in self._seen:
            self._again[window] += datum["sent"]
            self._seen_again.add(window)
        else:
            self._seen[window] = Content(
                datum["sent"], datum["ok"], datum["min_ns"], datum["max_ns"]
            )

    def verdict(self) -> Verdict:
        """Compare; windows that are not due yet may be there or not."""
        due = {w: content for w, content in self._expected.items() if self._is_due(w)}
        seen = self._seen
        lost = sum(max(0, c.sent - seen.get(w, NOTHING).sent) for w, c in due.items())
        more = sum(max(0, c.sent - self._expected.get(w, NOTHING).sent) for w, c in seen.items())
        strange = seen.keys() - self._expected.keys()
        differing = [w for w, content in due.items() if w in seen and seen[w] != content]
        return Verdict(
            published=sum(content.sent for content in due.values()),
            lost=lost,
            double=more + self._again.total(),
            windows=len(due),
            missing_windows=sum(w not in seen for w in due),
            doubled_windows=len(self._seen_again),
            wrong_windows=len(strange) + len(differing),
        )

    def _is_due(self, window: Window) -> bool:
        spread_ns = self.window_ns // CLOSING_SHARE
        after_us = (self.window_ns + self.lateness_ns + spread_ns + MARGIN_NS) // US_NS
        return window.start_us + after_us <= self._latest_us[window.agent]


def read_truth(settings: KafkaSettings, *, window_ns: int, lateness_ns: int) -> Truth:
    """Return what the topics of rounds and windows hold; rounds that nobody can decode left out."""
    truth, codec = Truth(window_ns, lateness_ns), Codec()
    with LogReader(settings) as reader:
        for message in log_messages(reader, settings, PROBE_ROUND):
            try:
                truth.observe_round(codec.decode_datum(PROBE_ROUND, message.value() or b""))
            except DecodeError:
                continue
        for message in log_messages(reader, settings, PROBE_WINDOW):
            truth.observe_window(codec.decode_datum(PROBE_WINDOW, message.value() or b""))
    return truth


def log_messages(reader: LogReader, settings: KafkaSettings, topic: Topic) -> Iterator[Message]:
    """Yield all messages of a topic, partition by partition."""
    name = settings.topic(topic.name)
    for partition in range(topic.partitions):
        low, high = reader.bounds(name, partition)
        yield from reader.read(name, partition, low, high)
