"""Dumps of real training jobs, kept as archives, with what was wrong in them."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import DATA

FOLDER: Final = DATA / "collectives"
CASES: Final = tuple(sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz")))


@dataclass(frozen=True)
class Case:
    """A job's dumps in a folder, and the truth."""

    folder: Path
    truth: dict[str, Any]


def unpack(name: str, folder: Path) -> Case:
    """Unpack a case, with the times at which its dumps were written."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    truth = json.loads((folder / "truth.json").read_bytes())
    assert isinstance(truth, dict)
    (folder / "truth.json").unlink()
    return Case(folder, truth)
