"""Verdicts over dumps of real jobs, each with one fault."""

from pathlib import Path

import pytest

from localizer.collectives.diagnosis import Certainty, HangClass, diagnose
from ops.jobs.dumps import read_dumps
from tests.collective_dumps import unpack

# Case -> class, ranks, certainty; None where nothing hangs. The ranks are the truth's.
EXPECTED = {
    "stalled": (HangClass.NEVER_LAUNCHED, Certainty.SURE),
    "stopped": (HangClass.MISSING_DUMP, Certainty.LIKELY),
    "exited": (HangClass.MISSING_DUMP, Certainty.LIKELY),
    "type": (HangClass.DESYNCHRONISED, Certainty.SURE),
    "pause": None,
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_first_finding_of_a_real_job_names_its_fault(name: str, tmp_path: Path) -> None:
    """And no innocent rank."""
    case = unpack(name, tmp_path)
    found = diagnose(read_dumps(case.folder).snapshots)
    expected = EXPECTED[name]
    assert found.hangs == (expected is not None)
    if expected is not None:
        first, *others = found.findings
        assert (first.hang_class, first.certainty) == expected
        assert list(first.ranks) == case.truth["culprits"]
        assert not others
