"""A lab of Soft-RoCE in its machine: real verbs to a verdict. Only when asked for.

SKELETONHUNTER_LAB_RXE=1 runs it: booting, loading and probing, emulated, take five minutes.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.demo.scoreboard import WATCHED
from ops.lab.fault_kinds import RXE_LAB
from ops.lab.kind import lab_kind
from ops.lab.lab import Lab, LabConfig
from ops.lab.suite.cases import SUITE
from ops.lab.suite.faults import FaultBench
from ops.log.watch import Watch
from ops.running.pipeline import Pipeline, PipelineConfig

ASKED = os.environ.get("SKELETONHUNTER_LAB_RXE") == "1"
LACKING = lab_kind(RXE_LAB).missing()

pytestmark = [
    pytest.mark.broker,
    pytest.mark.lab,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not ASKED, reason="SKELETONHUNTER_LAB_RXE=1 asks for it"),
    pytest.mark.skipif(LACKING is not None, reason=str(LACKING)),
]


def machines(folder: Path) -> Iterator[int]:
    """Yield the pids of emulators that share a lab's folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        if b"qemu" in words and os.fsencode(folder) in words:
            yield int(path.parent.name)


def test_a_cut_cable_is_named_by_real_verbs_and_nothing_is_left(tmp_path: Path) -> None:
    """Agents in the machine, Kafka outside; after it is down there is no machine and no folder."""
    (case,) = [case for case in SUITE if case.name == "link cut"]
    with (
        Pipeline(PipelineConfig(folder=tmp_path)) as pipeline,
        Lab(LabConfig(settings=pipeline.settings, kind=RXE_LAB)) as lab,
        Watch(pipeline.settings, WATCHED, from_start=True) as watch,
    ):
        pipeline.wait_ready()

        def check() -> None:
            lab.check()
            pipeline.group.check()

        folder = lab.path
        assert len(list(machines(folder))) == 1
        outcome = FaultBench(lab, watch, check).run(case)
        states = lab.status()["agents"]
    assert outcome.right, outcome
    assert set(states.values()) == {"running"}
    assert list(machines(folder)) == []
    assert not folder.exists()
