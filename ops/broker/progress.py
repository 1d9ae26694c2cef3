"""Shows a download: a bar in a terminal, a line now and then elsewhere."""

import threading
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress

from ops.broker.lock import LockedArtifact

# Without a terminal: a line for each of these shares of the files.
LINE_SHARE: Final = 0.25


class ConsoleProgress:
    """A `Progress` on standard error."""

    def __init__(self, what: str, console: Console | None = None) -> None:
        self._what = what
        self._console = console or Console(stderr=True, highlight=False)
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._missing = 0
        self._done = 0
        self._known_bytes = 0
        self._next_line = LINE_SHARE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def waiting(self) -> None:
        """Say that another process is at it."""
        self._console.print(f"{self._what}: another process is downloading; waiting for it")

    def begin(self, missing: int, present: int) -> None:
        """Say what is to come."""
        if not missing:
            return
        self._missing = missing
        kept = f", {present} are there already" if present else ""
        self._console.print(f"{self._what}: downloading {missing} files{kept}")
        if self._console.is_terminal:
            self._bar = RichProgress(
                TextColumn("{task.fields[files]}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=None, files=f"0/{missing} files")
            self._bar.start()

    def size(self, n_bytes: int) -> None:
        """Widen the bar."""
        with self._lock:
            self._known_bytes += n_bytes
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, total=self._known_bytes)

    def received(self, n_bytes: int) -> None:
        """Advance the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n_bytes)

    def fetched(self, artifact: LockedArtifact) -> None:
        """Count the file, and say so where there is no bar."""
        with self._lock:
            self._done += 1
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, files=f"{self._done}/{self._missing} files")
            elif self._done >= self._next_line * self._missing:
                self._next_line += LINE_SHARE
                self._console.print(
                    f"{self._what}: {self._done} of {self._missing} files, last {artifact.filename}"
                )
            if self._done == self._missing:
                if self._bar is not None:
                    self._bar.stop()
                self._console.print(f"{self._what}: all files are there, and their hashes right")
