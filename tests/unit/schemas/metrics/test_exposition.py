"""What a scrape gets: both text formats, exemplars, errors; and what stops a process at once."""

import time
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from schemas.metrics.exposition import exposed
from schemas.metrics.family import Family, Histogram, Kind, Metric, Sample, by_label, one
from schemas.process.errors import CannotRunError
from schemas.process.eventlog import EventLog
from schemas.process.health import HUNG_S, Health
from tests.scraping import scrape, scrape_text

LOG = EventLog("test")
WELL = Health(lambda: None, lambda: None)
COUNT = Metric(
    name="skeletonhunter_faults_total", kind=Kind.COUNTER, doc="Faults", action="-",
    labels=("kind",),
)  # fmt: skip
DELAY = Metric(name="skeletonhunter_delay_seconds", kind=Kind.HISTOGRAM, doc="Delay", action="-")
AGE = Metric(name="skeletonhunter_age_seconds", kind=Kind.GAUGE, doc="Age", action="-")


def families() -> Iterator[Family]:
    """Yield one of each kind, with hostile texts and an exemplar that is too long."""
    samples = [
        Sample(3, ('a"\n\\',), {"fault_id": "f-1"}),
        Sample(1, ("long",), {"fault_id": "x" * 200}),
    ]
    yield Family(COUNT, samples)
    delay = Histogram((0.5, 1.0))
    delay.observe(0.7, {"fault_id": "f-2"})
    yield delay.family(DELAY)
    yield one(AGE, None)


def test_openmetrics_has_values_and_exemplars() -> None:
    """A strict parser takes it all, and finds what was counted."""
    with exposed("0", "test", families, WELL, LOG) as address:
        assert address is not None
        found = scrape(address)
    first, long = found["skeletonhunter_faults"].samples
    assert (first.value, first.labels["kind"]) == (3, 'a"\n\\')
    assert first.exemplar is not None
    assert first.exemplar.labels == {"fault_id": "f-1"}
    assert long.exemplar is None
    buckets = [s.value for s in found["skeletonhunter_delay_seconds"].samples if "le" in s.labels]
    assert buckets == [0, 1, 1]
    assert found["skeletonhunter_age_seconds"].samples == []
    (build,) = found["skeletonhunter_build"].samples
    assert build.labels["process"] == "test"
    assert "process_resident_memory_bytes" in found


def test_the_older_format_is_there_for_older_scrapers() -> None:
    """The same names, without exemplars."""
    with exposed("0", "test", families, WELL, LOG) as address:
        assert address is not None
        text = scrape_text(address, "text/plain")
    assert 'skeletonhunter_delay_seconds_bucket{le="1.0"} 1.0\n' in text
    assert "fault_id" not in text


def test_nothing_listens_unless_it_is_set() -> None:
    """By default there is no server, and Prometheus' client is not even looked for."""
    with exposed("", "test", families, WELL, LOG) as address:
        assert address is None


def test_a_port_that_is_taken_ends_the_process_with_advice() -> None:
    """Two processes of one host with one file."""
    with exposed("0", "test", families, WELL, LOG) as address:
        assert address is not None
        with (
            pytest.raises(CannotRunError, match="need a port each: --metrics-listen"),
            exposed(address, "test", families, WELL, LOG),
        ):
            pass
    with exposed(address, "test", families, WELL, LOG) as again:
        assert again == address


def test_an_error_fails_the_scrape_and_nothing_else() -> None:
    """Prometheus then says that the target is down; the next scrape works again."""
    fail = True

    def collect() -> Iterator[Family]:
        if fail:
            raise RuntimeError("broken")
        yield by_label(COUNT, {"x": 1})

    with exposed("0", "test", collect, WELL, LOG) as address:
        assert address is not None
        with pytest.raises(OSError, match="500"):
            scrape(address)
        fail = False
        assert 'kind="x"' in scrape_text(address)


def asked(address: str, path: str) -> tuple[int, str]:
    """Return status and text of an answer."""
    try:
        with urlopen(f"http://{address}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_asked_at_the_same_address() -> None:
    """A process that reads is alive and not ready; one that hangs is not alive, ready or not."""
    polled_s: list[float | None] = [None]
    waits_for: list[str | None] = ["partitions 0 and 3 are rebuilt"]
    health = Health(lambda: polled_s[0], lambda: waits_for[0])
    with exposed("[::1]:0", "test", families, health, LOG) as address:
        assert address is not None
        assert asked(address, "/healthz") == (200, "alive\n")
        assert asked(address, "/readyz") == (503, "not ready: partitions 0 and 3 are rebuilt\n")
        waits_for[0], polled_s[0] = None, time.time()
        assert asked(address, "/readyz") == (200, "ready\n")
        polled_s[0] = time.time() - 2 * HUNG_S
        assert asked(address, "/healthz")[0] == 503
        assert asked(address, "/metrics")[0] == 200
