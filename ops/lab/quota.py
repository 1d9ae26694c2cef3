"""A limit on a process's processor time by a control group, as containers have one.

Version 1 of the kernel's interface (a hierarchy of the `cpu` controller) is used where it is
mounted, else version 2 (cgroups(7); Documentation/admin-guide/cgroup-v2.rst).
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The kernel's own default, and that of container runtimes.
PERIOD_US: Final = 100_000
# The kernel takes no quota below a millisecond.
LEAST_QUOTA_US: Final = 1_000
MOUNTS: Final = Path("/proc/self/mounts")
MEMBERSHIP: Final = Path("/proc/self/cgroup")


class NoQuotaError(OSError):
    """No control group with a limit can be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups with a limit on processor time can be made: our own group's folder."""

    folder: Path
    version: int


def find_hierarchy(mounts: Iterable[str], membership: Iterable[str]) -> Hierarchy | None:
    """Return our own group in a hierarchy that limits processor time; None: there is none. Pure.

    >>> find_hierarchy(["cgroup /c/cpu cgroup rw,cpu 0 0"], ["3:cpu,cpuacct:/us", "0::/x"])
    Hierarchy(folder=PosixPath('/c/cpu/us'), version=1)
    """
    own = {
        controller: path.strip()
        for _, controllers, path in (line.split(":", 2) for line in membership)
        for controller in controllers.split(",")
    }
    found: Hierarchy | None = None
    for _, where, kind, options, *_ in (line.split() for line in mounts):
        if kind == "cgroup" and "cpu" in options.split(",") and "cpu" in own:
            return Hierarchy(Path(where) / own["cpu"].lstrip("/"), 1)
        if kind == "cgroup2" and "" in own:
            found = Hierarchy(Path(where) / own[""].lstrip("/"), 2)
    return found


def limits(version: int, percent: float) -> dict[str, str]:
    """Return what to write into which files for so many per cent of one processor. Pure."""
    quota_us = max(LEAST_QUOTA_US, round(PERIOD_US * percent / 100))
    if version == 1:
        return {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us)}
    return {"cpu.max": f"{quota_us} {PERIOD_US}"}


@contextmanager
def limited(pid: int | None, percent: float, name: str) -> Iterator[None]:
    """Hold a process (None: none) to a share of one processor, in a group of that name.

    Raises
    ------
    NoQuotaError
        If no such group can be made here.
    """
    hierarchy = find_hierarchy(
        MOUNTS.read_text(encoding="utf-8").splitlines(),
        MEMBERSHIP.read_text(encoding="utf-8").splitlines(),
    )
    if hierarchy is None:
        raise NoQuotaError("no hierarchy of control groups limits processor time here")
    group = hierarchy.folder / name
    try:
        if hierarchy.version == 2:
            # Refused where our own group holds processes and is not the root.
            (hierarchy.folder / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        group.mkdir()
    except OSError as error:
        raise NoQuotaError(f"no control group with a limit can be made here: {error}") from error
    try:
        try:
            for file, text in limits(hierarchy.version, percent).items():
                (group / file).write_text(text, encoding="ascii")
            if pid is not None:
                (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise NoQuotaError(f"{group}: {error}") from error
        yield
    finally:
        if pid is not None:
            with suppress(OSError):  # it has ended
                (hierarchy.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
        group.rmdir()


def why_no_quota() -> str | None:
    """Return why no process can be limited here; None: it can."""
    try:
        with limited(None, 50.0, f"skh-try-{os.getpid()}"):
            return None
    except OSError as error:
        return str(error)
