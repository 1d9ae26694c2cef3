"""Kernels that are compiled before they are needed."""

import pytest

from localizer import warm
from localizer.collectives import operation_fold
from localizer.inference import search


def test_kernels_are_there_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is left to compile at a start."""
    warm.main()
    assert "ready after" in capsys.readouterr().out
    before = len(operation_fold.fold.signatures)  # type: ignore[attr-defined]
    operation_fold.warm()
    search.warm()
    assert before == len(operation_fold.fold.signatures) > 0  # type: ignore[attr-defined]
