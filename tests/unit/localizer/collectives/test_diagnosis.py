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


def test_a_job_that_ended_well_and_lost_a_dump_is_no_hang(tmp_path: Path) -> None:
    """All ranks came equally far; the missing one is a note."""
    case = unpack("healthy", tmp_path)
    snapshots = [s for s in read_dumps(case.folder).snapshots if s.rank != 1]
    found = diagnose(snapshots)
    assert not found.findings
    assert found.without_dump == (1,)
    assert any(note.startswith("no dump of rank 1") for note in found.notes)


def test_last_ranks_without_a_dump_are_missed_by_the_sizes_of_groups(tmp_path: Path) -> None:
    """Both tensor- and data-parallel groups lack one."""
    case = unpack("stalled", tmp_path)
    snapshots = [s for s in read_dumps(case.folder).snapshots if s.rank != 3]
    found = diagnose(snapshots)
    assert found.without_dump == (3,)
    assert [finding.ranks for finding in found.findings] == [(1,)]
    assert diagnose(snapshots, world_size=4).without_dump == (3,)
