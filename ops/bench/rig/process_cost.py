"""CPU time and memory of a process, from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of one process at one moment; `peak` since its start.

    `pss` shares out the pages that other processes have as well; None where the kernel
    does not tell it.
    """

    rss_bytes: int
    peak_bytes: int
    pss_bytes: int | None


def parse_kb(text: str, name: str) -> int | None:
    """Return the bytes that a line `<name>: <n> kB` of a /proc file says; None without one."""
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        words = rest.split()
        if label == name and len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            return int(words[0]) * KB
    return None


def parse_cpu_ticks(stat: str) -> int:
    """Return utime + stime of a /proc/<pid>/stat line, clock ticks.

    Their sum is exact; how it divides is guessed from what runs at each tick, which a process
    that runs for a tenth of a millisecond at a time escapes. Fields are counted from behind
    the name, which may hold spaces and brackets.
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def memory(pid: int) -> Memory:
    """Read a process's memory.

    Raises
    ------
    OSError
        If there is no such process.
    """
    folder = Path("/proc") / str(pid)
    status = (folder / "status").read_text(encoding="utf-8")
    try:
        pss = parse_kb((folder / "smaps_rollup").read_text(encoding="utf-8"), "Pss")
    except OSError:
        pss = None
    return Memory(
        rss_bytes=parse_kb(status, "VmRSS") or 0,
        peak_bytes=parse_kb(status, "VmHWM") or 0,
        pss_bytes=pss,
    )


def cpu_s(pid: int) -> float:
    """Return the seconds of a core that a process has used, all its threads."""
    stat = (Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8")
    return parse_cpu_ticks(stat) / os.sysconf("SC_CLK_TCK")


def cpu_ns(pid: int) -> int:
    """Return the nanoseconds of a core that a process has used, by its CPU clock.

    For short stretches, in which the ticks of `cpu_s` are too coarse. The number of that clock is
    what clock_getcpuclockid(3) makes of the process: ~pid << 3, and 2 for scheduled time.

    Raises
    ------
    OSError
        If there is no such process.
    """
    return time.clock_gettime_ns(~pid << 3 | 2)
