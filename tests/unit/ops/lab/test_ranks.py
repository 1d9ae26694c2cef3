"""What the ranks of a lab's real job are told, and which Python runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.lab.errors import LabError, LabUsageError
from ops.lab.faults import FaultError
from ops.lab.frameworks import JAX, TORCH, framework_of, job_python
from ops.lab.lab import Lab, LabConfig
from ops.lab.ranks import JobConfig, TrainingRanks
from ops.lab.shape import LabShape
from ops.lab.training import ENVIRONMENT
from ops.lab.training.announced import announce
from ops.running.processes import ProcessGroup
from schemas.kafka.connection import KafkaSettings

SHAPE = LabShape(hosts=2, rails=2)


@pytest.fixture
def ranks(tmp_path: Path) -> TrainingRanks:
    """Give ranks that are not started."""
    made = TrainingRanks(
        ProcessGroup(tmp_path), tmp_path, SHAPE, JobConfig(python=Path("python")), lambda: None
    )
    made.folder.mkdir()
    return made


def orders(ranks: TrainingRanks) -> object:
    """Return what the ranks read."""
    return json.loads((ranks.folder / "orders.json").read_bytes())


def test_a_rank_is_an_endpoint_and_binds_its_own_interface(ranks: TrainingRanks) -> None:
    """Ranks go host by host, rail by rail, and gloo is told which RNIC of the container is its."""
    told = ranks.described()
    assert [(r["endpoint_id"], r["interface"]) for r in told["ranks"]] == [
        ("job1-w0/r0", "e0"), ("job1-w0/r1", "e1"), ("job1-w1/r0", "e0"), ("job1-w1/r1", "e1"),
    ]  # fmt: skip
    assert told["tensor_parallel"] == SHAPE.rails
    assert told["ranks"][3]["address"] == "10.129.0.2"
    assert told["ranks"][3]["netns"].endswith(".job1-w1")


def test_orders_are_of_one_rank_until_they_are_taken_back(ranks: TrainingRanks) -> None:
    """Two ranks may go wrong at once, and each is healed by itself."""
    ranks.hurt("rank-slow", "job1|1", {"ms": 300.0})
    ranks.hurt("rank-stall", "job1|3", {})
    slow, stalled = {"kind": "rank-slow", "ms": 300.0}, {"kind": "rank-stall"}
    assert orders(ranks) == {"1": slow, "3": stalled}
    ranks.mend("rank-stall", "job1|3")
    assert orders(ranks) == {"1": slow}


def test_all_ranks_stop_writing_dumps_and_begin_again(ranks: TrainingRanks) -> None:
    """By a file that each of them looks for; said twice it is the same."""
    for on in (False, False, True, True):
        ranks.record(on=on)
        assert (ranks.folder / "unrecorded").exists() is not on


def test_what_has_not_begun_is_told(ranks: TrainingRanks) -> None:
    """There is no process to stop, and no progress, before the job has begun."""
    assert ranks.progress() == {}
    with pytest.raises(LabError, match="not begun"):
        ranks.hurt("rank-stop", "job1|0", {})


def test_a_python_without_torch_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is missing, nor ours, which has no PyTorch, runs ranks."""
    with pytest.raises(LabUsageError, match=r"No such file.*make training"):
        job_python(Path("/nowhere/python"))
    monkeypatch.setenv(TORCH.python_env, sys.executable)
    with pytest.raises(LabUsageError, match=r"has no PyTorch.*--job-python"):
        job_python(None)
    # That Python is for PyTorch: JAX is looked for in another.
    monkeypatch.setenv(JAX.python_env, sys.executable)
    with pytest.raises(LabUsageError, match=r"has no JAX.*make training-jax.*JAX_PYTHON"):
        job_python(None, JAX)


def test_a_framework_is_known_by_its_name() -> None:
    """One that nobody knows is refused, and those that there are are named."""
    assert framework_of("jax") is JAX
    with pytest.raises(LabUsageError, match=r"no training job 'jaxx'.*jax"):
        framework_of("jaxx")


def test_a_fault_that_a_framework_cannot_have_is_refused(tmp_path: Path) -> None:
    """All ranks of JAX run one program: none is told to reduce something else."""
    config = JobConfig(python=Path("python"), framework=JAX)
    ranks = TrainingRanks(ProcessGroup(tmp_path), tmp_path, SHAPE, config, lambda: None)
    ranks.folder.mkdir()
    assert ranks.described()["framework"] == "jax"
    with pytest.raises(FaultError, match=r"rank-desync.*one compiled program.*--job torch"):
        ranks.hurt("rank-desync", "job1|1", {"how": "size"})
    assert not (ranks.folder / "orders.json").exists()
    ranks.hurt("rank-exit", "job1|1", {})
    assert orders(ranks) == {"1": {"kind": "rank-exit"}}


def test_a_lab_without_a_job_has_no_ranks() -> None:
    """Its faults of ranks are refused, and so is a real job in a lab of another kind."""
    settings = KafkaSettings(bootstrap="127.0.0.1:1")
    lab = Lab(LabConfig(settings=settings))
    with pytest.raises(FaultError, match=r"--job torch or --job jax"):
        lab.ranks.restart()
    real = LabConfig(settings=settings, job=JobConfig(python=Path("python")))
    with pytest.raises(LabUsageError, match="netns"):
        Lab(real).up()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_forked_rank_shows_an_environment_of_its_own() -> None:
    """Others read who it is, the parent shows what it did, and its own C library loses nothing."""
    script = """
import os, pathlib, subprocess, sys
from ops.lab.training.announced import announce
if os.fork() == 0:
    announce({"RANK": "3", "WORLD_SIZE": "8"})
    print(pathlib.Path("/proc/self/environ").read_bytes().rstrip(bytes(1)).split(bytes(1)))
    print(subprocess.run(["printenv", "KEPT"], capture_output=True).stdout, flush=True)
    os._exit(0)
os.wait()
print(b"KEPT=yes" in pathlib.Path("/proc/self/environ").read_bytes())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **ENVIRONMENT, "KEPT": "yes"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[b'RANK=3', b'WORLD_SIZE=8']", "b'yes\\n'", "True"]


def test_an_environment_needs_room() -> None:
    """What does not fit is refused, before anything is lost."""
    with pytest.raises(ValueError, match="have room"):
        announce({"RANK": "3" * 1_000_000})
