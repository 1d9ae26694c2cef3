"""A real training job in a lab of namespaces; needs a Python that has PyTorch (`make training`)."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localizer.collectives.diagnosis import HangClass, diagnose
from ops.jobs.dumps import read_dumps
from ops.lab.errors import LabUsageError
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.frameworks import job_python
from ops.lab.kind import why_no_netns
from ops.lab.lab import Lab, LabConfig
from ops.lab.netns.commands import namespaces
from ops.lab.ranks import JobConfig
from ops.lab.shape import LabShape
from schemas.kafka.connection import STATE_ENV, KafkaSettings


def why_no_job() -> str | None:
    """Return why no real job can train here; None: it can."""
    try:
        job_python(None)
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
SHAPE = LabShape(hosts=2, rails=2, pods=2, leaves=1, spines=1)
# Longer than any wait of a healthy job, and than the time between two dumps.
HANGS_S = 6.0


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings) -> Iterator[Lab]:
    """Give a lab whose four ranks train, without agents."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        monkeypatch.setenv(STATE_ENV, name)
        job = JobConfig(python=job_python(None), period_ms=200, checkpoint_ms=1, evaluation_ms=1)
        config = LabConfig(settings=kafka, kind=NETNS_LAB, shape=SHAPE, agents=False, job=job)
        with Lab(config) as up:
            yield up


def said(lab: Lab) -> list[tuple[HangClass, tuple[int, ...]]]:
    """Return what the dumps say now."""
    found = diagnose(read_dumps(lab.ranks.dumps).snapshots)
    return [(finding.hang_class, finding.ranks) for finding in found.findings]


def test_ranks_train_go_wrong_and_are_healed(lab: Lab) -> None:
    """A stall, a cut cable and a lost process stop all ranks; healed, each goes on or anew."""
    lab.fault("rank-stall", "3")
    time.sleep(HANGS_S)
    assert said(lab) == [(HangClass.NEVER_LAUNCHED, (3,))]
    lab.heal()
    lab.ranks.wait_training()

    attempt = lab.ranks.progress()["attempt"]
    lab.fault("rank-exit", "1")
    time.sleep(HANGS_S)
    assert lab.ranks.progress()["ended"] == {"1": 1}
    lab.heal()
    lab.ranks.wait_training()
    assert lab.ranks.progress()["attempt"] > attempt
    assert lab.ranks.progress()["ended"] == {}

    # After the restart: a wait no longer than one before it would be no hang.
    lab.fault("link-cut", "link:leaf:p1-0--rnic:h1/r0")
    time.sleep(HANGS_S)
    assert said(lab) == [(HangClass.NOT_FINISHED, ())]
    lab.heal()
    lab.ranks.wait_training()

    pids = [lab.ranks.pid(rank) for rank in range(4)]
    path = Path(lab.path)
    lab.fault("rank-stop", "0")
    lab.down()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert namespaces(path) == []
    actions = [(truth.action, truth.kind, truth.component_id) for truth in lab.truth]
    assert ("inject", "rank-exit", "job1|1") in actions
    assert ("heal", "rank-exit", "job1|1") in actions
