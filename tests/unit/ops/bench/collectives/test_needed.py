"""Parts that need a real job say so where there is none, and the others are measured."""

from pathlib import Path

import pytest

from ops.bench.collectives import collectives
from ops.bench.collectives.needed import lacks_torch
from ops.lab.frameworks import TORCH


@pytest.mark.parametrize("part", ["live", "dumps", "iteration", "peers"])
def test_without_pytorch_a_part_measures_nothing(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it raise: a whole `make bench-collectives` goes on."""
    monkeypatch.setenv(TORCH.python_env, "/nonexistent")
    said: list[str] = []
    assert collectives.PARTS[part](1, said.append) == []
    assert len(said) == 1
    assert said[0].startswith(("no real job here: ", "no PyTorch here: "))


def test_a_python_that_has_it_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch alone needs no root; nothing is said then."""
    found = tmp_path / "python"
    found.write_text("#!/bin/sh\nexit 0\n")
    found.chmod(0o755)
    monkeypatch.setenv(TORCH.python_env, str(found))
    said: list[str] = []
    assert not lacks_torch(said.append)
    assert said == []
