"""Fixtures for every test: one real Kafka for the session, fresh topics for each test."""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from ops.broker.embedded import EmbeddedKafka
from ops.topics.admin import TopicAdmin, apply_topics
from ops.topics.plan import Options, wanted_topics
from schemas.kafka.connection import BOOTSTRAP_ENV, STATE_ENV, KafkaSettings
from schemas.process.settings import CONFIG_ENV
from tests.kafka_container import engine_answers, kafka_container
from tests.scheduling import longest_first, scheduler, step_aside, turn

# Tests write records with fixed timestamps in the past. A broker deletes what is older than its
# topic's retention every five minutes, and the log cleaner does so in compacted topics (such as
# heartbeats) every fifteen seconds: the tests' own broker does neither in its first hour.
KEEP = {"log.initial.task.delay.ms": "3600000", "log.cleaner.backoff.ms": "3600000"}
GIVEN_BOOTSTRAP = pytest.StashKey[str | None]()
STATE_DIR = pytest.StashKey[str]()
SHARED_DIR = pytest.StashKey[Path]()
BROKER = pytest.StashKey[str]()
CONTAINER = "testcontainers"
SHARED = "skeletonhunter_shared"
# Hypothesis draws the same examples in every run, and keeps none: a run is green or red because
# of the code. `make fuzz-properties` draws new ones and keeps those that failed. Neither limits
# the time of an example or of drawing it, which would measure the machine; pytest's own timeout
# ends what hangs.
UNTIMED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("same", **UNTIMED, derandomize=True, database=None)
hypothesis.settings.register_profile("new", **UNTIMED, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("same")
EMBEDDED = "embedded Apache Kafka"
# Read by Java's launcher. A broker of a test lives for seconds or minutes: what the optimizing
# compiler costs is a third of its processor time, and is not earned back.
JAVA_OPTIONS_ENV = "JDK_JAVA_OPTIONS"
NO_OPTIMIZING = "-XX:TieredStopAtLevel=1"


def pytest_configure(config: pytest.Config) -> None:
    """Keep the operator's own broker and settings out of the tests, and the tests out of them."""
    # A shell starts what it runs in the background with Ctrl-C ignored, and children
    # inherit that; the tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings = getattr(config, "workerinput", os.environ)
    config.stash[GIVEN_BOOTSTRAP] = settings.pop(BOOTSTRAP_ENV, None)
    os.environ.pop(CONFIG_ENV, None)
    config.stash[STATE_DIR] = tempfile.mkdtemp(prefix="skeletonhunter-state-")
    # Of the process that starts the others.
    config.stash[SHARED_DIR] = Path(settings.get(SHARED, config.stash[STATE_DIR]))
    os.environ[STATE_ENV] = config.stash[STATE_DIR]
    os.environ.setdefault(JAVA_OPTIONS_ENV, NO_OPTIMIZING)


def pytest_sessionstart() -> None:
    """Let the examples of a test depend on the test only, not on what was imported before it.

    Hypothesis also draws constants from the modules that are imported so far, and so others in
    each order of the tests.
    """
    if hypothesis.settings().derandomize:
        none = providers._local_constants
        providers._get_local_constants = lambda: none


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the state folder."""
    shutil.rmtree(config.stash[STATE_DIR], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests over the processes of `pytest -n`."""
    return scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, in the processes of `pytest -n`."""
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass on to a process of `pytest -n` the folder of all processes, and the given Kafka.

    That is out of the environment by now.
    """
    node.workerinput[BOOTSTRAP_ENV] = node.config.stash[GIVEN_BOOTSTRAP]
    node.workerinput[SHARED] = str(node.config.stash[SHARED_DIR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test wait for its turn before its time is taken."""
    with turn(item.config.stash[SHARED_DIR], item.nodeid):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let tests that measure time go first."""
    step_aside(item.nodeid)


def broker_kind(config: pytest.Config) -> str:
    """Decide, once, which Kafka the tests use."""
    if BROKER not in config.stash:
        given = config.stash[GIVEN_BOOTSTRAP]
        if given is not None:
            config.stash[BROKER] = f"{BOOTSTRAP_ENV}={given}"
        elif engine_answers():
            config.stash[BROKER] = CONTAINER
        else:
            config.stash[BROKER] = f"{EMBEDDED}: no {BOOTSTRAP_ENV}, no Docker engine"
    return config.stash[BROKER]


def pytest_report_header(config: pytest.Config) -> str:
    """Say which Kafka the tests will use."""
    return f"broker for tests: {broker_kind(config)}"


def embedded() -> EmbeddedKafka:
    """Return the tests' own broker, not started yet."""
    return EmbeddedKafka(announce=False, settings=KEEP)


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a real Kafka: the one given, else a container, else our own."""
    config = request.config
    given = config.stash[GIVEN_BOOTSTRAP]
    if given is not None:
        yield given
        return
    with ExitStack() as stack:
        if broker_kind(config) == CONTAINER:
            try:
                bootstrap = stack.enter_context(kafka_container())
            except Exception as error:  # noqa: BLE001 - whatever engine and image say
                # An engine that cannot get the image is no reason to run no test.
                request.node.warn(pytest.PytestWarning(f"{EMBEDDED}: no container, {error}"))
                bootstrap = stack.enter_context(embedded()).bootstrap
        else:
            bootstrap = stack.enter_context(embedded()).bootstrap
        yield bootstrap


@pytest.fixture
def kafka(kafka_bootstrap: str) -> Iterator[KafkaSettings]:
    """Give settings with a prefix of this test's own, all topics of the contract made."""
    with topics_of_a_test(kafka_bootstrap, Options()) as settings:
        yield settings


@pytest.fixture
def replay_kafka(kafka_bootstrap: str) -> Iterator[KafkaSettings]:
    """Give the same with topics that keep the timestamps of what is written, as a replay's do."""
    with topics_of_a_test(kafka_bootstrap, Options(keep_all=True)) as settings:
        yield settings


@contextmanager
def topics_of_a_test(bootstrap: str, options: Options) -> Iterator[KafkaSettings]:
    """Make all topics of the contract under a new prefix; delete them at the end."""
    settings = KafkaSettings(bootstrap=bootstrap, topic_prefix=f"t{uuid.uuid4().hex[:10]}.")
    apply_topics(settings, options)
    yield settings
    # 50 ms, and it leaves a given broker as it was.
    TopicAdmin(settings).delete([t.name for t in wanted_topics(settings.topic_prefix)])


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state folder of this test's own."""
    folder = tmp_path / "state"
    monkeypatch.setenv(STATE_ENV, str(folder))
    return folder
