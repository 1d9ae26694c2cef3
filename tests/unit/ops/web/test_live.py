"""The reader of live topics, over a broker that is made up."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ops.log.entry import Entry
from ops.log.reading import Place, Range
from ops.log.timespan import Bound
from ops.view.cluster import ClusterView
from ops.web import counted, live, on_demand, ranked
from ops.web.live import LiveSource
from ops.web.pages.page import UnknownItemError, Wanted
from schemas import topics as t
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import RegistryError
from schemas.topics import Topic
from skeleton_job.series.columns import warm_kernel
from tests.collective_batches import bare_batch
from tests.unit.ops.recording_samples import START_MS
from tests.unit.ops.view_samples import counters, endpoint, entry, fault

SETTINGS = KafkaSettings(bootstrap="made:1", topic_prefix="p.")


class MadeBroker:
    """Topics of one partition each."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Entry]] = {f"p.{one.name}": [] for one in t.TOPICS}
        self.error: Exception | None = None
        self.away: str | None = None

    def write(self, topic: Topic, record: Any) -> None:
        """Append a record."""
        log = self.logs[f"p.{topic.name}"]
        log.append(entry(topic, record, offset=len(log), at_ms=START_MS))


class MadeReader:
    """What `LogReader` is for the source."""

    broker: MadeBroker

    def __init__(self, _settings: KafkaSettings) -> None:
        self._at: dict[Place, int] = {}

    def __enter__(self) -> "MadeReader":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def away(self) -> str | None:
        """Why the broker cannot be reached."""
        return self.broker.away

    def refusal(self, _topics: Collection[str]) -> str | None:
        """Nothing is refused."""
        return None

    def topics(self) -> dict[str, int]:
        """Return the topics."""
        if self.broker.error is not None:
            raise self.broker.error
        return dict.fromkeys(self.broker.logs, 1)

    def partitions(self, topics: Collection[str]) -> dict[Place, Range]:
        """Return the ranges."""
        return {(name, 0): Range(0, len(self.broker.logs[name])) for name in topics}

    def offsets_at(self, ranges: Mapping[Place, Range], _bound: Bound) -> dict[Place, int]:
        """Return the beginnings."""
        return dict.fromkeys(ranges, 0)

    def start(self, offsets: Mapping[Place, int]) -> None:
        """Begin there."""
        self._at = dict(offsets)

    def batch(
        self, timeout_s: float, keys: Collection[bytes] | None = None
    ) -> list[tuple[Place, Entry]]:
        """Return what is new."""
        if self.broker.error is not None:
            raise self.broker.error
        found: list[tuple[Place, Entry]] = []
        for place, at in self._at.items():
            new = self.broker.logs[place[0]][at:]
            found += [(place, one) for one in new if keys is None or one.key in keys]
            self._at[place] = at + len(new)
        if not found:
            time.sleep(timeout_s / 10)
        return found

    @property
    def ended(self) -> frozenset[Place]:
        """Where nothing more is."""
        return frozenset(p for p, at in self._at.items() if at >= len(self.broker.logs[p[0]]))


@contextmanager
def following(monkeypatch: pytest.MonkeyPatch, broker: MadeBroker) -> Iterator[LiveSource]:
    """Follow a broker."""
    monkeypatch.setattr(MadeReader, "broker", broker, raising=False)
    monkeypatch.setattr(live, "LogReader", MadeReader)
    monkeypatch.setattr(live, "RETRY_S", 0.01)
    monkeypatch.setattr(live, "QUIET_MS", 20)
    source = LiveSource(SETTINGS, faults_back_ms=1)
    source.start(lambda: None)
    try:
        yield source
    finally:
        source.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ids(source: LiveSource) -> list[str]:
    """Return the open faults."""
    return source.look(lambda view, _: sorted(h.last.fault_id for h in view.faults.open()))


def test_what_is_there_is_read_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what comes is there soon after."""
    broker = MadeBroker()
    broker.write(t.FAULT_EVENT, fault(1))
    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        assert ids(source) == ["f-1"]
        broker.write(t.FAULT_EVENT, fault(1, fault_id="f-2"))
        until(lambda: ids(source) == ["f-1", "f-2"])
        assert source.trouble is None


@pytest.mark.parametrize(
    ("error", "todo"),
    [
        (ConnectionError("Kafka at made:1: gone"), "--bootstrap"),
        (RegistryError("schema registry http://made:2: gone"), "schema.registry.url"),
    ],
)
def test_after_an_outage_it_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, error: Exception, todo: str
) -> None:
    """Saying meanwhile what is wrong; nothing is read twice."""
    broker = MadeBroker()
    broker.write(t.FAULT_EVENT, fault(1))
    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        broker.error = error
        until(lambda: source.trouble is not None and "gone" in source.trouble.what)
        assert source.trouble is not None
        assert todo in source.trouble.todo
        assert ids(source) == ["f-1"]
        broker.write(t.FAULT_EVENT, fault(1, fault_id="f-2"))
        broker.error = None
        until(lambda: source.trouble is None and ids(source) == ["f-1", "f-2"])
        assert source.look(lambda view, _: view.records[t.FAULT_EVENT.name]) == 2


def test_topics_that_were_made_anew_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the old ones said is of others."""
    broker = MadeBroker()
    for number in range(3):
        broker.write(t.FAULT_EVENT, fault(1, fault_id=f"f-{number}"))
    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        broker.error = ConnectionError("gone")
        until(lambda: source.trouble is not None)
        broker.logs = MadeBroker().logs
        broker.write(t.FAULT_EVENT, fault(1, fault_id="new"))
        broker.error = None
        until(lambda: ids(source) == ["new"])


def test_a_missing_topic_is_named_until_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read meanwhile."""
    broker = MadeBroker()
    kept = broker.logs.pop(f"p.{t.FAULT_EVENT.name}")
    broker.write(t.ENDPOINT, endpoint("h0"))
    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        assert source.trouble is not None
        assert "no topic p.fault.event.v1" in source.trouble.what
        assert source.look(lambda view, _: len(view.endpoints)) == 1
        broker.logs[f"p.{t.FAULT_EVENT.name}"] = kept
        broker.write(t.FAULT_EVENT, fault(1))
        until(lambda: source.trouble is None and ids(source) == ["f-1"])


def test_a_reader_that_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that stands still must not look as if it moved."""
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: ended.set())
    broker = MadeBroker()
    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        broker.error = KeyError("a bug")
        assert ended.wait(20)
        until(lambda: not source.alive)
        assert source.trouble is not None
        assert "the reader ended" in source.trouble.what


def test_counters_are_read_of_those_whom_somebody_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From what was there on; of nobody else; what cannot be read is said."""
    broker = MadeBroker()
    # Compiling it may take longer than the test waits.
    warm_kernel()
    monkeypatch.setattr(on_demand, "LogReader", MadeReader)
    monkeypatch.setattr(on_demand, "RETRY_S", 0.01)
    for second in range(20):
        for host in ("h0", "h1"):
            broker.write(t.RNIC_COUNTERS, counters(host, second, 10**6, 0))

    def shown(*hosts: str) -> dict[str, float | None]:
        def rates(view: ClusterView, _now_ms: int) -> dict[str, float | None]:
            names = [f"{host}/r0" for host in ("h0", "h1")]
            found = view.counters.rates(["agent-h0", "agent-h1"], names, 10**9)
            if found is None:
                return {"": None}
            return {name: float(found.tx[row].max()) for row, name in enumerate(found.endpoints)}

        return source.look(
            rates, wanted=lambda _view: Wanted(agents=[f"agent-{host}" for host in hosts])
        )

    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        assert shown() == {"": None}
        until(lambda: shown("h1") == {"h0/r0": 0, "h1/r0": pytest.approx(10**6)})
        until(lambda: shown("h0", "h1") == {"h0/r0": pytest.approx(10**6), "h1/r0": 10**6})
        monkeypatch.setattr(source._counters, "_most", 2)
        shown("h0", "h1", "h2")
        until(lambda: source.look(lambda view, _: view.counters.missing == counted.FULL))
        broker.error = ConnectionError("Kafka at made:1: gone")
        until(lambda: source.look(lambda view, _: "gone" in str(view.counters.missing)))


def test_ranks_are_read_of_the_job_that_somebody_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second job comes later, and is read from the beginning; what cannot be read is counted."""
    broker = MadeBroker()
    monkeypatch.setattr(on_demand, "LogReader", MadeReader)
    monkeypatch.setattr(on_demand, "RETRY_S", 0.01)
    for job in ("job-1", "job-2", "job-3"):
        broker.write(t.COLLECTIVE_OP, bare_batch(job, 0))
    broken = entry(t.COLLECTIVE_OP, bare_batch("job-1", 1), offset=3)
    broker.logs[f"p.{t.COLLECTIVE_OP.name}"].append(replace(broken, value=b"nothing"))

    def shown(*jobs: str) -> dict[str, tuple[int, int]]:
        def ranks(view: ClusterView, _now_ms: int) -> dict[str, tuple[int, int]]:
            held = {job: view.ranks.get(job) for job in ("job-1", "job-2", "job-3")}
            return {job: (len(one.job.ranks), one.undecodable) for job, one in held.items() if one}

        return source.look(ranks, wanted=lambda _view: Wanted(jobs=jobs))

    with following(monkeypatch, broker) as source:
        until(lambda: source.ready)
        assert shown() == {}
        until(lambda: shown("job-1") == {"job-1": (1, 1)})
        broker.write(t.COLLECTIVE_OP, bare_batch("job-1", 2))
        until(lambda: shown("job-1") == {"job-1": (2, 1)})
        until(lambda: shown("job-1", "job-2") == {"job-1": (2, 1), "job-2": (1, 0)})
        monkeypatch.setattr(source._ranks, "_most", 2)
        shown("job-1", "job-2", "job-3")
        until(lambda: source.look(lambda view, _: view.ranks.missing == ranked.FULL))
        source._ranks._until_s.clear()
        until(lambda: source.look(lambda view, _: len(view.ranks)) == 0)


def test_live_pages_show_no_other_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said how to get there."""
    with (
        following(monkeypatch, MadeBroker()) as source,
        pytest.raises(UnknownItemError, match="as it is now") as told,
    ):
        source.look(lambda view, _: view, START_MS)
    assert "--recording" in told.value.todo
