"""The plugin for NCCL, compiled, and a program that plays NCCL before it. No GPU is needed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ops.bench.agent
from probers.collector.build_plugin import build_plugin

HASH = 0xABC
SOURCE = Path(ops.bench.agent.__file__).with_name("nccl_stand_in.c")
HAS_COMPILER = shutil.which(os.environ.get("CC") or "cc") is not None


@dataclass(frozen=True)
class Programs:
    """Both, compiled."""

    plugin: Path
    stand_in: Path


def compile_programs(folder: Path) -> Programs:
    """Compile both into a folder."""
    folder.mkdir(exist_ok=True)
    stand_in = folder / "nccl_stand_in"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, *flags, str(SOURCE), "-ldl", "-o", str(stand_in)]
    subprocess.run(command, check=True)
    return Programs(build_plugin(folder), stand_in)


class StandIn:
    """A running stand-in for a process that uses NCCL."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process = process
        self.folder = folder

    def tell(self, *lines: str) -> list[str]:
        """Let it make calls; return its answers."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        answers = []
        for line in lines:
            stdin.write(line + "\n")
            stdin.flush()
            answers.append(stdout.readline().strip())
        return answers

    @property
    def ring(self) -> Path:
        """Where its ring is."""
        (found,) = self.folder.glob(f"nccl-*-{self.process.pid}")
        return found

    def read(self, at: int, length: int) -> bytes:
        """Read its ring, as the collector does."""
        with self.ring.open("rb") as file:
            file.seek(at)
            return file.read(length)

    def send_step(self, handle: int, parent: int, n_bytes: int, *, until: str) -> None:
        """Make a step of a send go as far as `posted`, `ready`, `sent` or `done`."""
        self.tell(f"step {handle} 0 {parent} 0", f"record {handle} 8 0")
        if until != "posted":
            # NCCL tells this again each time that it tries.
            self.tell(*[f"record {handle} 20 0"] * 3)
        if until in {"sent", "done"}:
            self.tell(f"record {handle} 9 {n_bytes}")
        if until == "done":
            self.tell(f"stop {handle}")


@contextmanager
def stand_in(
    programs: Programs, folder: Path, *, version: int = 6, env: dict[str, str] | None = None
) -> Iterator[StandIn]:
    """Run a stand-in whose ring is in a folder."""
    given = os.environ | {"SKELETONHUNTER_RING_DIR": str(folder)} | (env or {})
    command = [str(programs.stand_in), str(programs.plugin), str(version)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given
    ) as process:
        try:
            yield StandIn(process, folder)
        finally:
            process.kill()
