"""The kept recordings of real faults in a lab of namespaces: every one of them is diagnosed."""

import pytest

from localizer.config import build_config as localizer_config
from ops.recording.labelled import Judged, judge
from ops.recording.labels import SUFFIX
from streams.config import build_config as worker_config
from tests import ROOT

KEPT = ROOT / "tests" / "data" / "labelled"
# What lies in the repository stays small.
MOST_BYTES = 5_000_000

pytestmark = pytest.mark.slow


def kept(name: str) -> Judged:
    """Return what is made of a recording; some ten seconds of processor time."""
    return judge(
        KEPT / f"{name}{SUFFIX}", worker_config({}, {}).detection(), localizer_config({}, {})
    )


def test_hard_faults_are_found_at_the_right_place_and_nothing_else_is_said() -> None:
    """A cut, a switch without power, holes in tables, a silent port, a dead agent: within 5 s."""
    hard = kept("netns-hard")
    assert not hard.matching.missed
    assert not hard.matching.false
    for fault, verdict in hard.matching.pairs:
        assert verdict.candidates[0] in fault.components
        assert verdict.kind == fault.kind or verdict.kind in fault.also_kinds
        assert verdict.opened_ns - fault.begin_ns < 5 * 10**9


def test_nobody_is_paged_for_what_is_no_fault() -> None:
    """Of a starved agent some 500 probes are lost; a host is drained, a job ends."""
    confounders = kept("netns-confounders")
    assert len(confounders.labels.confounders) == 7
    assert not confounders.labels.faults
    assert not confounders.matching.false


def test_a_port_with_a_full_queue_is_found_and_nothing_else_is_said() -> None:
    """Cross traffic takes 95 % of a port's rate; the job's bursts at another are found, too."""
    queues = kept("netns-queues")
    assert not queues.matching.false
    found = {fault.fault_id: (fault, verdict) for fault, verdict in queues.matching.pairs}
    fault, verdict = found["full queue of a slow port"]
    assert verdict.candidates[0] in fault.components
    assert verdict.kind == fault.kind or verdict.kind in fault.also_kinds


def test_steady_gray_faults_are_found_first_at_their_cable_and_nothing_else_is_said() -> None:
    """Loss, and delays that stay; what misses is in the figures (`--only kept`)."""
    gray = kept("netns-gray")
    assert not gray.matching.false
    found = {fault.fault_id: (fault, verdict) for fault, verdict in gray.matching.pairs}
    for name in ("3 % loss", "+5 ms delay", "1 % loss", "5 ms jitter"):
        fault, verdict = found[name]
        assert verdict.candidates[0] in fault.components
        assert verdict.kind == fault.kind or verdict.kind in fault.also_kinds


def test_the_recordings_stay_small() -> None:
    """All together."""
    assert sum(path.stat().st_size for path in KEPT.iterdir()) < MOST_BYTES
