"""Runs a lab in the background: the same command again, in a session of its own."""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ops.lab.errors import LabError
from ops.lab.folder import (
    CONTROL_FILE,
    FOLDER_MODE,
    LabFolderError,
    info,
    is_up,
    lab_path,
    labs_dir,
)

# A lab in a machine boots it and lets its agents start one after another, emulated.
UP_TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.1
COMMAND: Final = [sys.executable, "-c", "from ops.cli.app import main; main()", "lab", "up"]


def arguments(name: str, flags: Mapping[str, Any]) -> list[str]:
    """Return the command; flags with value None are left out, with True they stand alone."""
    command = [*COMMAND, "--name", name]
    for flag, value in flags.items():
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    return command


def up_detached(name: str, flags: Mapping[str, Any]) -> int:
    """Bring a lab up in the background, wait until it is up; return its pid.

    Raises
    ------
    LabError
        If it does not come up; the message holds what it said.
    """
    path = lab_path(name)
    if is_up(path):
        raise LabFolderError(f"lab {name!r} is up already (pid {info(path).get('pid')})")
    labs_dir().mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    log = labs_dir() / f"{name}.log"
    try:
        with log.open("wb") as out:
            child = subprocess.Popen(
                arguments(name, flags),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait(child, path, log)
        except BaseException:
            child.terminate()
            child.wait()
            raise
    finally:
        log.unlink(missing_ok=True)
    return child.pid


def _wait(child: "subprocess.Popen[bytes]", path: Path, log: Path) -> None:
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not (info(path).get("pid") == child.pid and (path / CONTROL_FILE).exists()):
        code = child.poll()
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        if code is not None:
            raise LabError(f"the lab did not come up:\n{said}")
        if time.monotonic() > deadline:
            raise LabError(f"the lab is not up after {UP_TIMEOUT_S:.0f} s:\n{said}")
        time.sleep(POLL_S)
