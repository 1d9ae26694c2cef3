"""Where a running broker is found: `broker.json` in the state folder."""

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from schemas.kafka.connection import BROKER_FILE, state_dir
from schemas.process.files import parse_json, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A running broker: its address, the process that owns it, its data."""

    bootstrap: str
    pid: int
    data_dir: str

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self)) + "\n"

    @property
    def owner_alive(self) -> bool:
        """Whether the process that owns the broker exists."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def announcement_path() -> Path:
    """Return where the announcement lies."""
    return state_dir() / BROKER_FILE


def write(announcement: Announcement) -> Path:
    """Write the file so that a reader sees all of it or nothing; raises OSError."""
    path = announcement_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{BROKER_FILE}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(announcement.text())
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    return path


def read() -> Announcement | None:
    """Return the announcement, None where there is none that makes sense."""
    try:
        found = parse_json(read_file(announcement_path()))
        return Announcement(
            bootstrap=str(found["bootstrap"]),
            pid=int(found["pid"]),
            data_dir=str(found["data_dir"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def withdraw(announcement: Announcement) -> None:
    """Remove the file, if it is still this one."""
    if read() == announcement:
        announcement_path().unlink(missing_ok=True)
