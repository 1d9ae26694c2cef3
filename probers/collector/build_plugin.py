"""Compiles the profiler plugin for NCCL where it is wanted; nothing else of ours needs it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent.parent / "collectives" / "nccl_plugin"
NAME: Final = "libnccl-profiler-skeletonhunter.so"
FLAGS: Final = ("-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden")


class BuildError(Exception):
    """The plugin could not be compiled; the message says why."""


def build_plugin(folder: Path) -> Path:
    """Compile the plugin into a folder; return its path.

    Raises
    ------
    BuildError
        If there is no compiler, or it fails.
    """
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        raise BuildError("there is no C compiler: install one, or name it in CC")
    target = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [compiler, *FLAGS, str(SOURCES / "plugin.c"), "-o", str(target)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    except OSError as error:
        raise BuildError(str(error)) from error
    if done.returncode:
        raise BuildError(f"{compiler} failed:\n{done.stderr.strip()}")
    return target
