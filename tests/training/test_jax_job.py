"""A real job of JAX in a lab of namespaces, and the hang watcher, which knows no operation of it.

Needs root, and a Python that has JAX (`make training-jax`).
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.lab.errors import LabUsageError
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.faults import FaultError
from ops.lab.frameworks import JAX, job_python
from ops.lab.kind import why_no_netns
from ops.lab.lab import KAFKA_FILE, Lab, LabConfig
from ops.lab.netns.commands import namespaces
from ops.lab.ranks import JobConfig
from ops.lab.shape import LabShape
from ops.log.watch import Watch
from schemas import topics
from schemas.enums import FaultLifecycle, HangClass
from schemas.kafka.connection import STATE_ENV, KafkaSettings
from schemas.records import Hang


def why_no_job() -> str | None:
    """Return why no job of JAX can train here; None: it can."""
    try:
        job_python(None, JAX)
    except LabUsageError as error:
        return str(error)
    return why_no_netns()


WHY_NOT = why_no_job()
pytestmark = [
    pytest.mark.broker,
    pytest.mark.lab,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
SHAPE = LabShape(hosts=2, rails=2, pods=2, leaves=1, spines=1, task_id="jaxjob")
# Each stretch of it holds a checkpoint and an evaluation.
HEALTHY_S = 20.0
TOLD_S = 30.0


@dataclass
class Bench:
    """A lab whose ranks train, and what the hang watcher says."""

    lab: Lab
    watch: Watch

    def hears(self, timeout_s: float) -> Hang | None:
        """Return what is said next, if anything is in time."""
        seen = self.watch.until(lambda one: isinstance(one.record, Hang), timeout_s)
        return None if seen is None else seen.record

    def mends(self) -> None:
        """Heal, and wait until the job trains and its hang is resolved."""
        self.lab.heal()
        self.lab.ranks.wait_training()
        over = self.hears(TOLD_S)
        assert over is not None
        assert over.state is FaultLifecycle.RESOLVED


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings) -> Iterator[Bench]:
    """Give a lab whose four ranks train, without agents, and a hang watcher."""
    job = JobConfig(
        python=job_python(None, JAX), framework=JAX, period_ms=200, checkpoint_steps=40,
        checkpoint_ms=3_000, evaluation_steps=30, evaluation_ms=4_000,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        monkeypatch.setenv(STATE_ENV, name)
        config = LabConfig(settings=kafka, kind=NETNS_LAB, shape=SHAPE, agents=False, job=job)
        with Lab(config) as lab, Watch(kafka, (topics.COLLECTIVE_HANG,)) as watch:
            command = [sys.executable, "-m", "localizer.hangs", "--log-json"]
            lab.group.start("hangs", [*command, "--config", str(lab.path / KAFKA_FILE)])
            yield Bench(lab, watch)


def test_what_the_kernel_says_of_a_job_without_a_recorder_is_told(bench: Bench) -> None:
    """A stopped process, a cut cable, a process that is gone; nothing of a job that trains."""
    lab = bench.lab
    assert bench.hears(HEALTHY_S) is None
    with pytest.raises(FaultError, match="one compiled program"):
        lab.fault("rank-desync", "1", how="size")

    lab.fault("rank-stop", "1")
    hang = bench.hears(TOLD_S)
    assert hang is not None
    assert (hang.hang_class, hang.ranks) == (HangClass.PROCESS_STOPPED, (1,))
    assert hang.waiting_ranks == (0, 2, 3)
    bench.mends()

    # Ranks 0 and 2 are the replicas of this rail.
    lab.fault("link-cut", "link:leaf:p1-0--rnic:h1/r0")
    hang = bench.hears(TOLD_S)
    assert hang is not None
    assert hang.hang_class is HangClass.NETWORK
    assert hang.endpoint_ids == ("jaxjob-w0/r0", "jaxjob-w1/r0")
    bench.mends()

    lab.fault("rank-exit", "3")
    hang = bench.hears(TOLD_S)
    assert hang is not None
    assert (hang.hang_class, hang.ranks) == (HangClass.RANK_MISSING, (3,))
    bench.mends()

    begin = lab.ranks.progress()["steps"]
    time.sleep(3.0)
    assert min(lab.ranks.progress()["steps"]) > min(begin)
    pids, path = [lab.ranks.pid(rank) for rank in range(4)], Path(lab.path)
    lab.down()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert namespaces(path) == []
