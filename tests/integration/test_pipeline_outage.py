"""The whole pipeline outlives its broker: no verdict comes of the outage, the next one is right."""

import time
from pathlib import Path

import pytest

from ops.demo.scoreboard import WATCHED
from ops.lab.lab import Lab, LabConfig
from ops.lab.suite.cases import CASES
from ops.lab.suite.faults import FaultBench
from ops.log.watch import Watch
from ops.running.pipeline import Pipeline, PipelineConfig

pytestmark = [pytest.mark.broker, pytest.mark.lab]

# Longer than all thresholds of silence, and than a session of the worker's.
AWAY_S = 8.0
# A worker with a busy machine under it once took more than 90 s.
READY_TIMEOUT_S = 200.0


def test_a_killed_broker_is_no_fault_of_the_network(tmp_path: Path) -> None:
    """Killed under agents, worker, skeleton job and localizer, and restarted: all go on."""
    cut = next(case for case in CASES if case.name == "link cut")
    with Pipeline(PipelineConfig(folder=tmp_path)) as pipeline:
        assert pipeline.kafka is not None
        pipeline.wait_ready(READY_TIMEOUT_S)
        with (
            Lab(LabConfig(settings=pipeline.settings, name="outage")) as lab,
            Watch(pipeline.settings, WATCHED, from_start=True) as watch,
        ):

            def check() -> None:
                lab.check()
                pipeline.group.check()

            bench = FaultBench(lab, watch, check)
            bench.wait_calm()
            before = bench.board.probes
            pipeline.kafka.kill()
            time.sleep(AWAY_S)
            pipeline.kafka.restart()
            assert bench.healthy(10) == []
            assert bench.board.probes > before
            assert bench.board.faults == []
            outcome = bench.run(cut)
    assert outcome.right, outcome
