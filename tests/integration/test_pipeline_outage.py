"""The whole pipeline outlives its broker: no verdict comes of the outage, the next one is right.

No result is lost either: what agents kept meanwhile is in a window, whoever of them is back first.
"""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from ops.bench.cluster.watch import WorkerLag
from ops.bench.rig.waiting import wait_until
from ops.bench.rig.windows import read_truth
from ops.demo.scoreboard import WATCHED
from ops.lab.lab import Lab, LabConfig
from ops.lab.suite.cases import CASES
from ops.lab.suite.faults import FaultBench
from ops.log.watch import Watch
from ops.running.pipeline import LAB_TABLES, WORKER, Pipeline, PipelineConfig
from schemas.kafka.connection import KafkaSettings
from schemas.units import SECOND_NS

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
        wait_processed(pipeline.settings)
        window_s, lateness_s = (
            float(LAB_TABLES[WORKER][name]) for name in ("window_s", "allowed_lateness_s")
        )
        verdict = read_truth(
            pipeline.settings,
            window_ns=round(window_s * SECOND_NS),
            lateness_ns=round(lateness_s * SECOND_NS),
        ).verdict()
    assert verdict.windows > 0
    assert verdict == replace(
        verdict, lost=0, double=0, missing_windows=0, doubled_windows=0, wrong_windows=0
    )


def wait_processed(settings: KafkaSettings) -> None:
    """Wait until the worker has processed every round."""
    lag = WorkerLag(settings)

    def through() -> bool:
        lag.sample()
        return not lag.now_messages

    try:
        wait_until(through, READY_TIMEOUT_S, "the worker has not processed all rounds")
    finally:
        lag.close()
