"""Reads the dumps of ranks as they are written anew; never waits for a writer."""

import os
import stat
from dataclasses import dataclass
from typing import Final

from probers.collectives.core import DumpReading
from probers.collectives.flight_recorder import MAX_DUMP_BYTES
from probers.collectives.sockets import RankKey
from probers.collector.rooted import open_place
from schemas.units import SECOND_NS, US_NS

# Beside a dump: its time says until when nothing has happened that the dump does not hold.
ALIVE: Final = ".alive"
# `torch_dump.py` writes 3.5 MB a minute with a ring of 500 operations, and no more with larger
# ones, but where a job pauses again and again. A megabyte takes 0.05 s to read as JSON, and 0.8 s
# as a pickle: a tenth of a core at most.
BYTES_A_MINUTE: Final = 8 * 2**20
# A file is a place first: to open a device does something, such as starting a watchdog, and jobs
# name the path.
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

_Version = tuple[int, int, int]


@dataclass(slots=True)
class _Allowance:
    """How many bytes of a rank's dumps may be read."""

    n_bytes: float
    at_ns: int


class DumpFiles:
    """Remembers which version of each dump was read last, and how much of each rank's were.

    A rank may write a new dump of the largest size at every moment: one is read at once, and then
    as much as `BYTES_A_MINUTE` lets.
    """

    def __init__(self) -> None:
        self._read: dict[RankKey, _Version] = {}
        self._allowances: dict[RankKey, _Allowance] = {}

    def forget(self, key: RankKey) -> None:
        """Forget a rank that ended."""
        self._read.pop(key, None)
        self._allowances.pop(key, None)

    def look(self, key: RankKey, path: str, *, now_ns: int, root: str | None = None) -> DumpReading:
        """Return a rank's dump, its content only if it is another than at the last look.

        Parameters
        ----------
        now_ns
            By a clock that never goes back.
        root
            What the path begins in, as `open_place` has it.
        """
        try:
            # Before the dump: what is written between the two looks is in the dump.
            alive_at = _written_at(root, path + ALIVE)
            place = open_place(root, path)
        except FileNotFoundError:
            # The job chose the name, and people read the reason in a terminal.
            name = "".join(c if c.isprintable() else "?" for c in os.path.basename(path))
            return DumpReading(missing_reason=f"no dump: {name}")
        except OSError as error:
            return DumpReading(missing_reason=f"no dump: {error.strerror}")
        except ValueError as error:
            return DumpReading(missing_reason=f"no dump: {error}")
        try:
            return self._look(key, place, alive_at, now_ns)
        except OSError as error:
            return DumpReading(missing_reason=f"no dump: {error.strerror}")
        finally:
            os.close(place)

    def _look(self, key: RankKey, place: int, alive_at: int | None, now_ns: int) -> DumpReading:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode):
            return DumpReading(missing_reason="no dump: not a regular file")
        if found.st_size > MAX_DUMP_BYTES:
            return DumpReading(missing_reason=f"no dump: larger than {MAX_DUMP_BYTES} bytes")
        written_at = found.st_mtime_ns // US_NS
        until = written_at if alive_at is None else max(written_at, alive_at)
        version = found.st_ino, found.st_size, found.st_mtime_ns
        live = alive_at is not None
        if self._read.get(key) == version:
            return DumpReading(written_at=until, live=live)
        if not self._may_read(key, found.st_size, now_ns):
            reason = f"no dump: more than {BYTES_A_MINUTE // 2**20} MiB of them a minute"
            return DumpReading(missing_reason=reason)
        # What is there now, whatever its path names meanwhile.
        with os.fdopen(os.open(f"/proc/self/fd/{place}", _OPEN), "rb") as file:
            content = file.read(MAX_DUMP_BYTES)
        self._read[key] = version
        return DumpReading(content=content, written_at=until, live=live)

    def _may_read(self, key: RankKey, n_bytes: int, now_ns: int) -> bool:
        held = self._allowances.setdefault(key, _Allowance(MAX_DUMP_BYTES, now_ns))
        came = (now_ns - held.at_ns) * BYTES_A_MINUTE / (60 * SECOND_NS)
        held.n_bytes, held.at_ns = min(MAX_DUMP_BYTES, held.n_bytes + came), now_ns
        if n_bytes > held.n_bytes:
            return False
        held.n_bytes -= n_bytes
        return True


def _written_at(root: str | None, path: str) -> int | None:
    try:
        place = open_place(root, path)
    except OSError:
        return None
    try:
        return os.fstat(place).st_mtime_ns // US_NS
    finally:
        os.close(place)
