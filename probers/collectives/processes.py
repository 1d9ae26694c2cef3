"""Which processes are ranks of training jobs, and how they are: texts of /proc, pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from probers.collectives.nccl_environment import NcclEnvironment, nccl_environment
from schemas.bounds import MAX_RANK
from schemas.enums import ProcessState
from schemas.ids import check_id
from schemas.units import SECOND_NS, US_PER_S

# What launchers give each rank, the first that is there; torchrun, MPI, Slurm.
RANK_NAMES: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
SIZE_NAMES: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
# Where PyTorch writes dumps to, today's name and that before 2.9; a rank appends its number.
DUMP_NAMES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# For whoever starts the job: which one it is, and the endpoints of the rank's container.
TASK_NAME: Final = "SKELETONHUNTER_TASK_ID"
ENDPOINTS_NAME: Final = "SKELETONHUNTER_ENDPOINT_IDS"
MAX_ENDPOINTS: Final = 64

# proc(5). X and x are a process that ends, t one that a debugger stopped.
_STATES: Final[Mapping[str, ProcessState]] = {
    "R": ProcessState.RUNNING, "S": ProcessState.SLEEPING, "I": ProcessState.SLEEPING,
    "D": ProcessState.DISK, "T": ProcessState.STOPPED, "t": ProcessState.STOPPED,
    "Z": ProcessState.ZOMBIE, "X": ProcessState.GONE, "x": ProcessState.GONE,
}  # fmt: skip
# Places behind the name of the program, which is in parentheses and may hold any of both.
_STATE, _PARENT, _USER, _SYSTEM, _START = 0, 1, 11, 12, 19
_NUMBER: Final = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """What /proc/PID/stat says.

    Attributes
    ----------
    started_at
        Microseconds since the epoch.
    """

    pid: int
    parent: int
    program: str
    state: ProcessState
    cpu_ns: int
    started_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRank:
    """What a process's environment says of its rank.

    `dump_base` is the beginning of the path of its dumps, as the process sees it.
    """

    task_id: str
    rank: int
    world_size: int | None
    endpoint_ids: tuple[str, ...]
    dump_base: str | None
    nccl: NcclEnvironment = field(default_factory=NcclEnvironment)


def parse_stat(text: str, *, ticks_hz: int, boot_s: int) -> ProcessReading:
    """Return what a /proc/PID/stat says.

    Parameters
    ----------
    ticks_hz
        Of the kernel's clock ticks (`SC_CLK_TCK`).
    boot_s
        When the host was started (`btime` of /proc/stat), seconds since the epoch.

    Raises
    ------
    ValueError
        If it is no such text.
    """
    head, _, rest = text.rpartition(")")
    pid, _, program = head.partition(" (")
    fields = rest.split()
    if len(fields) <= _START:
        raise ValueError("no /proc/PID/stat")
    return ProcessReading(
        pid=int(pid),
        parent=int(fields[_PARENT]),
        program=program,
        state=_STATES.get(fields[_STATE], ProcessState.UNKNOWN),
        cpu_ns=(int(fields[_USER]) + int(fields[_SYSTEM])) * SECOND_NS // ticks_hz,
        started_at=boot_s * US_PER_S + int(fields[_START]) * US_PER_S // ticks_hz,
    )


def boot_time(text: str) -> int:
    """Return when the host was started, seconds since the epoch, from /proc/stat.

    Raises
    ------
    ValueError
        If the text does not say.
    """
    for line in text.splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    raise ValueError("/proc/stat has no btime")


def rank_of(environment: bytes, *, task_id: str | None, dump_base: str | None) -> JobRank | None:
    """Return which rank a process is, from its /proc/PID/environ; None: none of a known job.

    Parameters
    ----------
    task_id, dump_base
        For processes whose environment does not say.
    """
    given = _given(environment)
    rank = _first_number(given, RANK_NAMES)
    task = given.get(TASK_NAME) or task_id
    if rank is None or rank > MAX_RANK or task is None:
        return None
    try:
        check_id("task", task)
        endpoints = tuple(
            check_id("endpoint", one.strip())
            for one in given.get(ENDPOINTS_NAME, "").split(",")
            if one.strip()
        )
    except ValueError:
        return None
    size = _first_number(given, SIZE_NAMES)
    return JobRank(
        task_id=task, rank=rank,
        world_size=size if size is not None and rank < size <= MAX_RANK + 1 else None,
        endpoint_ids=endpoints[:MAX_ENDPOINTS],
        dump_base=next((given[name] for name in DUMP_NAMES if given.get(name)), dump_base),
        nccl=nccl_environment(given),
    )  # fmt: skip


def why_unused(environment: bytes, *, task_id: str | None) -> str | None:
    """Return why a process that has a rank is none of a known job; None: it has no rank.

    No value of the environment is in it: it is for the log.
    """
    if not any(f"{name}=".encode() in environment for name in RANK_NAMES):
        return None
    given = _given(environment)
    rank = _first_number(given, RANK_NAMES)
    if rank is None:
        return None
    if rank > MAX_RANK:
        return f"the rank is beyond {MAX_RANK}"
    task = given.get(TASK_NAME) or task_id
    if task is None:
        return f"there is no {TASK_NAME}, and no --task-id"
    try:
        check_id("task", task)
    except ValueError:
        return f"{TASK_NAME} is no id of a task"
    return f"{ENDPOINTS_NAME} is no list of ids"


def leaders(
    found: Mapping[int, JobRank], readings: Mapping[int, ProcessReading]
) -> dict[tuple[str, int], int]:
    """Return the process of each rank, by task and rank.

    Children inherit the environment: workers that load data are not the rank, nor is what the
    rank was started by, such as a shell. Of a rank's processes the one nearest to the root that
    runs Python is taken, else the one nearest to the root; of several, as while a job is
    restarted, the latest.
    """
    chosen: dict[tuple[str, int], tuple[tuple[bool, int, int], int]] = {}
    for pid, one in found.items():
        if pid not in readings:
            continue
        reading, depth = readings[pid], 0
        parent = reading.parent
        # A parent is older: this ends, also where numbers were used again meanwhile.
        while parent in found and _is_same(found[parent], one) and depth < len(found):
            depth += 1
            parent = readings[parent].parent if parent in readings else 0
        gone = reading.state in {ProcessState.ZOMBIE, ProcessState.GONE}
        merit = (
            not gone and "python" in reading.program.lower(),
            -depth,
            reading.started_at,
        )
        key = one.task_id, one.rank
        if key not in chosen or merit > chosen[key][0]:
            chosen[key] = merit, pid
    return {key: pid for key, (_, pid) in chosen.items()}


def _given(environment: bytes) -> dict[str, str]:
    return dict(
        entry.partition("=")[::2]
        for entry in environment.decode("utf-8", "replace").split("\0")
        if "=" in entry
    )


def _is_same(one: JobRank, other: JobRank) -> bool:
    return (one.task_id, one.rank) == (other.task_id, other.rank)


def _first_number(given: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        if _NUMBER.fullmatch(given.get(name, "")):
            return int(given[name])
    return None
