"""Metrics of real processes that watch a lab: all that is declared, and what Prometheus answers."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from ops.bench.operator.receivers import Receiver, receiving
from ops.deploy.grafana.dashboards import DASHBOARDS, Dashboard
from ops.docs.metrics import PROCESSES
from ops.lab.lab import Lab, LabConfig
from ops.lab.shape import LabShape
from ops.running.pipeline import LAB_TABLES, Pipeline, PipelineConfig
from ops.topics.admin import TopicAdmin
from ops.topics.plan import wanted_topics
from schemas.metrics.exposition import BUILD
from schemas.metrics.family import INFO, TOTAL
from tests import ROOT
from tests.scraping import scrape

pytestmark = [pytest.mark.broker, pytest.mark.lab, pytest.mark.slow]

RULES = ROOT / "ops" / "deploy" / "prometheus" / "rules.yml"
SMALL = LabShape(hosts=2, rails=2, pods=2, leaves=1, spines=2)
CUT = "link:leaf:p0-0--spine:0"
TIMEOUT_S = 120.0
CLI = [sys.executable, "-u", "-c", "from ops.cli.app import main; main()"]
WEB = [*CLI, "web", "--listen", "127.0.0.1:0"]
# A command for people says it in words.
METRICS_AT = re.compile(r"metrics: http://(\S+)/metrics")
# Turns a condition into 0 or 1, and what is absent into a number.
CONDITION = re.compile(r"(?<=[^<>=!])(==|>|<)(?= )")
ABSENT = re.compile(r"\babsent\b")
# Labels that a line of a graph is called by.
NAMED = re.compile(r"{{(\w+)}}")


def until(what: str, found: Callable[[], Any]) -> Any:
    """Return what is found, once there is something."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {TIMEOUT_S:.0f} s")


@pytest.fixture(scope="module")
def pipeline(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Give processes that watch a lab, each with metrics at a port of its own."""
    config = PipelineConfig(
        folder=tmp_path_factory.mktemp("metrics"),
        bootstrap=kafka_bootstrap,
        prefix=f"t{uuid.uuid4().hex[:10]}.",
        tables={**LAB_TABLES, "metrics": {"listen": "0"}},
    )
    with receiving(Receiver()) as people, Pipeline(config) as running:
        with running.config_path.open("a") as settings:
            settings.write(f'[[bridge.target]]\ntype = "webhook"\nurl = "{people.url}"\n')
        hangs = running.start("hangs")
        bridge = running.start("bridge", "ops.bridge")
        running.wait_ready()
        until("the hang watcher", lambda: hangs.events("hangs.ready"))
        until("the bridge", lambda: bridge.events("bridge.ready"))
        running.group.start("web", [*WEB, "--config", str(running.config_path)])
        until("the page", lambda: METRICS_AT.search(running.group.child("web").log.read_text()))
        with Lab(LabConfig(settings=running.settings, shape=SMALL)) as lab:
            until("probes", lambda: value(running, "worker", "skeletonhunter_probes_total") > 100)
            lab.fault("link-cut", CUT)
            until("a fault", lambda: value(running, "localizer", "skeletonhunter_faults_open"))
            until("agents", lambda: value(running, "localizer", "skeletonhunter_agents"))
            yield running
        TopicAdmin(running.settings).delete([t.name for t in wanted_topics(config.prefix)])


def address(pipeline: Pipeline, process: str) -> str:
    """Return where a process exposes its metrics."""
    child = pipeline.group.child(process)
    if process == "web":
        found = METRICS_AT.search(child.log.read_text())
        assert found is not None
        return found[1]
    (said,) = child.events("metrics.listening")
    return str(said["address"])


def value(pipeline: Pipeline, process: str, name: str) -> float:
    """Return the sum of a metric's samples."""
    samples = scrape(address(pipeline, process))[name.removesuffix(TOTAL)].samples
    return sum(float(sample.value) for sample in samples)


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_exposes_what_the_page_says(pipeline: Pipeline, process: str) -> None:
    """No more and no less; each has a value while a job runs."""
    found = scrape(address(pipeline, process))
    _, declared = PROCESSES[process]
    names = {m.name.removesuffix(TOTAL).removesuffix(INFO) for m in (BUILD, *declared)}
    assert {name for name in found if not name.startswith("process_")} == names
    # These need a job that hangs, a whole window of counters, and a minute of an agent's answers
    # from the broker.
    silent = {
        "skeletonhunter_hang_transitions",
        "skeletonhunter_skeleton_oldest_timestamp_seconds",
        "skeletonhunter_agent_clock_offset_max_seconds",
    }
    assert {name for name in names if not found[name].samples} <= silent


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_that_works_is_ready(pipeline: Pipeline, process: str) -> None:
    """What supervises it asks at the same address; ready means that all was read and rebuilt."""
    for path in ("healthz", "readyz"):
        with urlopen(f"http://{address(pipeline, process)}/{path}", timeout=10) as said:
            assert said.status == 200


def test_agents_and_workers_count_the_same(pipeline: Pipeline) -> None:
    """What agents say that they sent is what the worker read, but for what is on its way."""
    before = [
        value(pipeline, "localizer", "skeletonhunter_agent_results_total"),
        value(pipeline, "worker", "skeletonhunter_probes_total"),
    ]
    time.sleep(10)
    sent = value(pipeline, "localizer", "skeletonhunter_agent_results_total") - before[0]
    read = value(pipeline, "worker", "skeletonhunter_probes_total") - before[1]
    assert sent > 0
    assert read == pytest.approx(sent, rel=0.4)
    agents = {s.labels["state"]: s.value for s in scrape(address(pipeline, "localizer"))[
        "skeletonhunter_agents"].samples}  # fmt: skip
    assert agents["probing"] > 0


def test_the_open_fault_is_the_example(pipeline: Pipeline) -> None:
    """Of the transition that opened it, so that a graph leads to the record."""
    found = scrape(address(pipeline, "localizer"))["skeletonhunter_fault_transitions"]
    opened = [sample for sample in found.samples if sample.labels["state"] == "open"]
    assert opened
    assert all(s.exemplar is not None and s.exemplar.labels["fault_id"] for s in opened)


def query(base: str, expression: str) -> list[Any]:
    """Return Prometheus' answer to an expression."""
    url = f"{base}/api/v1/query?{urlencode({'query': expression})}"
    with urlopen(url, timeout=30) as response:  # noqa: S310
        answer = json.loads(response.read())
    assert answer["status"] == "success", answer
    return list(answer["data"]["result"])


@pytest.fixture(scope="module")
def prometheus(pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a real Prometheus that scrapes the processes and has the rules."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed: Debian's package of that name has it")
    folder = tmp_path_factory.mktemp("prometheus")
    settings = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(RULES)]
    targets = [address(pipeline, process) for process in PROCESSES]
    settings["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/db",
             f"--web.listen-address={place}"],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        base = f"http://{place}"
        until("three targets", lambda: targets_up(base) == len(targets))
        # Rates need two scrapes.
        time.sleep(5)
        yield base
    finally:
        running.terminate()
        running.wait(30)


def targets_up(base: str) -> int:
    """Return how many targets answer."""
    try:
        return len(query(base, 'up{job="skeletonhunter"} == 1'))
    except OSError:
        return 0


def test_prometheus_answers_every_expression_of_the_rules(prometheus: str) -> None:
    """An expression that asks for what nobody exposes would never fire."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            asked = CONDITION.sub(r"\1 bool", ABSENT.sub("count", rule["expr"]))
            answer = query(prometheus, asked)
            if rule["alert"] != "SkeletonHunterSkeletonsOld":
                assert answer, f"{rule['alert']}: no answer to {asked}"


# These need a whole window of counters, a minute of an agent's answers, a second transition while
# Prometheus looks on (the rate of a histogram that has just appeared is not a number), a job that
# hangs.
NOT_YET = ("Oldest skeleton", "Worst clock", "Verdict's delay", "Transitions by class")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_prometheus_answers_every_expression_of_a_dashboard(
    prometheus: str, dashboard: Dashboard
) -> None:
    """By numbers, under the labels that the lines are called by."""
    for panel, asked in dashboard.queries():
        expression = asked.expr.replace("$job", "skeletonhunter").replace("$__rate_interval", "1m")
        answer = query(prometheus, expression)
        if panel.title in NOT_YET:
            continue
        assert answer, f"{panel.title}: no answer to {expression}"
        assert any(one["value"][1] != "NaN" for one in answer), f"{panel.title}: {expression}"
        for one in answer:
            assert set(NAMED.findall(asked.legend)) <= one["metric"].keys(), panel.title


def test_a_lab_that_is_watched_raises_no_alert_but_the_watchdog(prometheus: str) -> None:
    """A fault of the network is none of SkeletonHunter."""
    firing = query(prometheus, 'ALERTS{alertstate="firing"}')
    assert {one["metric"]["alertname"] for one in firing} == {"SkeletonHunterWatchdog"}
