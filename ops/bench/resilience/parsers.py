"""Files that others made: each parser ends soon, with a result or an error of its own."""

import json
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

from typer.testing import CliRunner

from arena.simulation.world import World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricShape
from ops.bench.resilience.hostile_files import CSV, HARMFUL, TASK, mutated, mutated_json
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.cli.app import build
from ops.cli.errors import CliError
from ops.jobs.task_file import TaskFileError, parse_task_file
from ops.recording.container import DamageError
from ops.recording.diagnosis import INPUTS
from ops.recording.export import export
from ops.recording.manifest import FILE
from ops.recording.source import Source
from schemas.codec import Codec
from schemas.process.settings import ConfigError, read_table

# A busy machine; a good file takes a tenth of a second.
LIMIT_S: Final = 30
RECORDINGS: Final = 4_000
TASK_FILES: Final = 5_500
CSVS: Final = 500
SECONDS: Final = 3
MOST_SHOWN: Final = 10
MOST_CHARS: Final = 1_000


class HangsError(BaseException):
    """A parser is not through in time; no `except Exception` of its own stops this."""


@contextmanager
def soon(limit_s: int = LIMIT_S) -> Iterator[None]:
    """End what takes long with HangsError."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise HangsError(f"hangs for {limit_s} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass(slots=True)
class Attempts:
    """Files that were parsed, and what went wrong: the number of the file, and how."""

    tried: int = 0
    refused: int = 0
    hangs: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def parse(self, name: str, parser: Callable[[], bool]) -> None:
        """Call a parser, which says whether it refused the file."""
        self.tried += 1
        try:
            with soon():
                self.refused += parser()
        except HangsError:
            self.hangs.append(name)
        except Exception:  # noqa: BLE001 - any that is not a refusal is what is looked for
            self.tracebacks.append(f"{name}: {traceback.format_exc(limit=-3)[:MOST_CHARS]}")


def small_recording(folder: Path) -> Path:
    """Write a recording of some seconds of a simulated cluster."""
    shape = FabricShape(hosts=8, rails=2, segment_hosts=2, spines=2)
    job = JobPlan(task_id="a", first_host=0, hosts=8)
    export(
        World(name="lab-7", seed=3, cluster=Cluster(Fabric(shape), (job,), flows=4),
              seconds=SECONDS),
        folder,
    )  # fmt: skip
    return folder


def read_recording(folder: Path) -> bool:
    """Read a recording as `diagnose` and `replay` do; return whether something is damaged."""
    try:
        source = Source(folder)
    except (FileNotFoundError, DamageError):
        return True
    damaged = False
    with source:
        for stream in [*source.rounds(Codec()), *source.others(Codec(), INPUTS)]:
            try:
                for _ in stream:
                    pass
            except DamageError:
                damaged = True
    return damaged


def command(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says."""
    done = CliRunner().invoke(build(), list(arguments))
    if isinstance(done.exception, CliError | ConfigError):
        return done.exception.exit_code, str(done.exception)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def mutated_recordings(recording: Path, count: int, scratch: Path) -> Attempts:
    """Read mutated copies of a recording; every third has a mutated manifest."""
    random, found = Random(1), Attempts()  # noqa: S311 - mutations need no secrecy
    names = sorted(p.name for p in recording.iterdir())
    for number in range(count):
        folder = scratch / str(number)
        shutil.copytree(recording, folder)
        path = folder / (FILE if number % 3 == 0 else random.choice(names))
        if path.name == FILE and number % 2:
            path.write_text(mutated_json(path.read_text(), random))
        else:
            path.write_bytes(mutated(path.read_bytes(), random))
        found.parse(f"recording {number}", partial(read_recording, folder))
        shutil.rmtree(folder)
    return found


def mutated_task_files(count: int, scratch: Path) -> Attempts:
    """Read mutated task files, and the same as files of settings; TOML and JSON in turns."""
    random, found = Random(2), Attempts()  # noqa: S311 - mutations need no secrecy
    config = scratch / "c.toml"
    for number in range(count):
        if number % 3 == 2:
            document = {"task_id": "a", "containers": [{"rails": number}]}
            content = mutated_json(json.dumps(document), random).encode()
            found.parse(f"task file {number}", partial(_refuses_json, content))
            continue
        content = mutated(TASK.encode(), random)
        if number % 3:
            config.write_bytes(content)
            found.parse(f"settings {number}", partial(_refuses_settings, config))
        else:
            found.parse(f"task file {number}", partial(_refuses_task, "t.toml", content))
    return found


def _refuses_task(name: str, content: bytes) -> bool:
    try:
        parse_task_file(name, content, cluster="c", submitted_at=1)
    except TaskFileError:
        return True
    return False


def _refuses_json(content: bytes) -> bool:
    if not _refuses_task("t.json", content):
        raise ValueError(f"accepted without hosts: {content!r}")
    return True


def _refuses_settings(path: Path) -> bool:
    try:
        read_table(path, "worker")
    except ConfigError:
        return True
    return False


def mutated_csvs(count: int, scratch: Path) -> Attempts:
    """Import mutated CSVs: bad rows are counted, a bad header is refused."""
    random, found = Random(3), Attempts()  # noqa: S311 - mutations need no secrecy
    for number in range(count):
        path, out = scratch / f"{number}.csv", scratch / f"o{number}"
        path.write_bytes(mutated(CSV.encode(), random))
        found.parse(f"CSV {number}", partial(_refuses_csv, path, out))
        path.unlink()
        shutil.rmtree(out, ignore_errors=True)
    return found


def _refuses_csv(path: Path, out: Path) -> bool:
    code, output = command("import-csv", str(path), "--out", str(out))
    if code not in {0, 2, 4}:
        raise ValueError(f"exit code {code}: {output}")
    return code != 0


def harmful_recordings(recording: Path, scratch: Path) -> Attempts:
    """Diagnose recordings that are made to hang or to break a parser."""
    found = Attempts()
    for change in HARMFUL:
        folder = scratch / change.__name__
        shutil.copytree(recording, folder)
        change(folder)
        found.parse(change.__name__, partial(_refuses_diagnosis, folder))
        shutil.rmtree(folder)
    return found


def _refuses_diagnosis(folder: Path) -> bool:
    code, output = command("diagnose", str(folder))
    return code == 4 and "damaged at byte 0: " in output


def parsers(runs: int, say: Say) -> list[Figure]:
    """Parse thousands of mutated files, and those that are made to do harm."""
    del runs  # The seeds are fixed.
    found: list[Attempts] = []
    with scratch_folder() as folder:
        recording = small_recording(folder / "recording")
        for name, attempt in (
            ("recordings", partial(mutated_recordings, recording, RECORDINGS)),
            ("task files", partial(mutated_task_files, TASK_FILES)),
            ("CSVs", partial(mutated_csvs, CSVS)),
            ("harmful recordings", partial(harmful_recordings, recording)),
        ):
            scratch = folder / name
            scratch.mkdir()
            found.append(attempt(scratch))
            say(f"{name}: {found[-1].tried:,} tried, {found[-1].refused:,} refused")
            for wrong in (found[-1].hangs + found[-1].tracebacks)[:MOST_SHOWN]:
                say(wrong)
    what = f"{sum(one.tried for one in found):,} hostile files"
    return [
        figure(f"{what}: parsers that hang", [float(sum(len(a.hangs) for a in found))], "", 0.0),
        figure(f"{what}: tracebacks", [float(sum(len(a.tracebacks) for a in found))], "", 0.0),
    ]


PARTS: Final[Parts] = {"parsers": parsers}
