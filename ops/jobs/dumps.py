"""Finds the dumps of a job's ranks in a folder, whatever their files are called."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from probers.collectives.flight_recorder import (
    MAX_DUMP_BYTES,
    Dump,
    DumpError,
    NoDumpError,
    read_dump,
)
from probers.collector.dumps import ALIVE
from schemas.process.files import read_file
from schemas.records import CollectiveSnapshot

# A job has a file a rank; more is the wrong folder.
MAX_FILES: Final = 200_000
# What `probers/collector/torch_dump.py` puts beside a dump, and one that it has not finished.
BESIDE: Final = (ALIVE, ".tmp")
# A rank so many times the number of dumps is more often a time or a host in the files' names.
FAR: Final = 10


class DumpsError(ValueError):
    """A folder whose dumps cannot be judged together; the message says why."""


@dataclass(slots=True)
class Dumps:
    """The dumps of a folder.

    `left_out` and `damaged` say why, by file.
    """

    snapshots: list[CollectiveSnapshot] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def shown(text: str) -> str:
    r"""Return a text, such as the name of a file, that cannot steer a terminal and is UTF-8.

    >>> shown("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def read_dumps(folder: Path, only: str | None = None) -> Dumps:
    """Read the dumps of a folder and of the folders in it.

    Parameters
    ----------
    folder
        Where they are.
    only
        Pattern of the files to read, relative to the folder; `*` matches slashes as well.

    Raises
    ------
    DumpsError
        If there are none, or two of one rank.
    """
    found = Dumps()
    of_rank: dict[int, str] = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if only is not None and not fnmatch(name, only):
            continue
        name = shown(name)
        try:
            dump = _read(path, name)
        except NoDumpError as error:
            found.left_out[name] = str(error)
            continue
        except DumpError as error:
            found.damaged[name] = str(error)
            continue
        except (ValueError, ArithmeticError, RecursionError) as error:
            # What no check foresaw: one file must not lose the others.
            found.damaged[name] = shown(f"cannot be read ({type(error).__name__}: {error})")
            continue
        rank = dump.snapshot.rank
        if rank in of_rank:
            raise DumpsError(
                f"rank {rank} has two dumps, {of_rank[rank]} and {name}: of two jobs or attempts? "
                "Name a folder that holds one of them, or say which files by --only 'PATTERN'"
            )
        of_rank[rank] = name
        found.snapshots.append(dump.snapshot)
        found.warnings += [f"{name}: {warning}" for warning in dump.warnings]
    largest, read = max(of_rank, default=0), len(of_rank) + len(found.damaged)
    if largest >= FAR * max(read, 1):
        found.warnings.append(
            f"{of_rank[largest]}: taken for rank {largest:,}, of {read:,} dumps: is that number of "
            "its name the rank?"
        )
    if not found.snapshots and not found.damaged:
        which = "" if only is None else f" that match {only!r}"
        raise DumpsError(f"{folder} holds no dumps of the Flight Recorder{which}")
    return found


def _read(path: Path, name: str) -> Dump:
    try:
        content = read_file(path, MAX_DUMP_BYTES)
        written_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise DumpError(error.strerror or "cannot be read") from error
    with suppress(OSError):
        # Nothing happened until then that the dump does not hold.
        written_ns = max(written_ns, path.with_name(path.name + ALIVE).stat().st_mtime_ns)
    return read_dump(content, name, taken_at=written_ns // 1000)


def _files(folder: Path) -> Iterator[Path]:
    """Return the regular files of a folder, those of folders in it too, by name."""
    try:
        found = (path for path in folder.rglob("*") if path.suffix not in BESIDE)
        paths = sorted(path for path in found if path.is_file())
    except OSError as error:
        raise DumpsError(f"{folder}: {error.strerror}") from error
    if len(paths) > MAX_FILES:
        raise DumpsError(f"{folder} holds more than {MAX_FILES:,} files")
    return iter(paths)
