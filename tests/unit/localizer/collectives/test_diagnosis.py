"""Verdicts over dumps of real jobs, each with one fault."""

from pathlib import Path

import pytest

from localizer.collectives.diagnosis import Certainty, HangClass, diagnose
from ops.jobs.dumps import read_dumps
from tests.collective_dumps import CASES, unpack
from tests.training.judged import judge


@pytest.mark.parametrize("name", CASES)
def test_a_real_job_is_judged_rightly(name: str, tmp_path: Path) -> None:
    """Its class and culprit, and no innocent rank."""
    case = unpack(name, tmp_path)
    judged = judge(case.folder, case.truth)
    assert judged.is_right, judged


def test_what_is_concluded_from_absence_is_less_than_sure(tmp_path: Path) -> None:
    """A rank without a dump; one whose peer left none."""
    for name in ("stopped", "exited", "splits"):
        case = unpack(name, tmp_path / name)
        (finding,) = diagnose(read_dumps(case.folder).snapshots).findings
        assert finding.certainty is Certainty.LIKELY
        assert finding.doubts


def test_where_ranks_launched_is_told_with_few_ranks_first(tmp_path: Path) -> None:
    """The frames of the program, not of PyTorch."""
    case = unpack("stalled", tmp_path)
    (finding,) = diagnose(read_dumps(case.folder).snapshots).findings
    assert finding.stacks[0][1] in {(0,), (1,)}
    assert all("/torch/" not in stack for stack, _ in finding.stacks)


def test_a_pause_is_a_usual_wait_and_without_its_history_a_hang(tmp_path: Path) -> None:
    """Ages are held against what the rank itself has recorded."""
    case = unpack("pause", tmp_path)
    snapshots = read_dumps(case.folder).snapshots
    (finding,) = diagnose(snapshots).findings
    assert finding.hang_class is HangClass.USUAL_WAIT
    assert finding.age.waited is not None
    assert finding.age.longest_before is not None
    assert finding.age.waited < finding.age.longest_before
