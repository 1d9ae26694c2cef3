"""Which processes are ranks, from texts of /proc."""

import pytest

from probers.collectives.processes import (
    JobRank,
    ProcessReading,
    boot_time,
    leaders,
    parse_stat,
    rank_of,
    why_unused,
)
from schemas.enums import ProcessState

STAT = (
    "4711 (python (a) b) T 1 4711 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 12345 1 1 "
    "18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0"
)


def environment(**given: str) -> bytes:
    """Return the bytes of an environment."""
    return b"\0".join(f"{name}={value}".encode() for name, value in given.items()) + b"\0"


def reading(pid: int, parent: int, program: str = "python3", **changed: int) -> ProcessReading:
    """Return a process that sleeps."""
    return ProcessReading(
        pid=pid, parent=parent, program=program, state=ProcessState.SLEEPING, cpu_ns=0,
        started_at=changed.get("started_at", pid),
    )  # fmt: skip


def test_a_stat_is_read_whatever_the_program_is_called() -> None:
    """CPU time in nanoseconds, the start in microseconds since the epoch."""
    found = parse_stat(STAT, ticks_hz=100, boot_s=1_000)
    assert found == ProcessReading(
        pid=4711, parent=1, program="python (a) b", state=ProcessState.STOPPED,
        cpu_ns=3 * 10**9, started_at=1_000 * 10**6 + 123_450_000,
    )  # fmt: skip
    with pytest.raises(ValueError, match="no /proc"):
        parse_stat("4711 (python) S 1", ticks_hz=100, boot_s=0)


def test_the_boot_time_is_found() -> None:
    """Or its absence is told."""
    assert boot_time("cpu 1 2\nbtime 17\n") == 17
    with pytest.raises(ValueError, match="btime"):
        boot_time("cpu 1 2\n")


def test_the_environment_says_which_rank_a_process_is() -> None:
    """By torchrun's names first, then MPI's and Slurm's; the dump's path by either name."""
    found = rank_of(
        environment(RANK="3", WORLD_SIZE="8", SKELETONHUNTER_TASK_ID="job1", SLURM_PROCID="9",
                    SKELETONHUNTER_ENDPOINT_IDS="w0/r0, w0/r1",
                    TORCH_NCCL_DEBUG_INFO_TEMP_FILE="/tmp/old_"),
        task_id="other", dump_base="/else/",
    )  # fmt: skip
    assert found == JobRank(
        task_id="job1", rank=3, world_size=8, endpoint_ids=("w0/r0", "w0/r1"),
        dump_base="/tmp/old_",
    )  # fmt: skip
    slurm = rank_of(environment(SLURM_PROCID="2"), task_id="t", dump_base="/d/")
    assert slurm == JobRank(task_id="t", rank=2, world_size=None, endpoint_ids=(), dump_base="/d/")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"RANK": "1"}, "there is no SKELETONHUNTER_TASK_ID, and no --task-id"),
        ({"RANK": "1", "SKELETONHUNTER_TASK_ID": "s3cret !"}, "SKELETONHUNTER_TASK_ID is no id"),
        (
            {
                "RANK": "1", "SKELETONHUNTER_TASK_ID": "t",
                "SKELETONHUNTER_ENDPOINT_IDS": "s3cret>",
            },
            "SKELETONHUNTER_ENDPOINT_IDS is no list",
        ),
        ({"RANK": "999999999", "SKELETONHUNTER_TASK_ID": "t"}, "the rank is beyond"),
        ({"WORLD_SIZE": "1", "SKELETONHUNTER_TASK_ID": "t"}, None),
        ({"RANKING": "1", "XRANK": "2"}, None),
    ],
)  # fmt: skip
def test_why_a_process_with_a_rank_is_not_used_is_said(
    given: dict[str, str], why: str | None
) -> None:
    """Without what its environment holds: that may be a secret."""
    said = why_unused(environment(**given), task_id=None)
    assert (said or "").startswith(why or "")
    assert (said is None) == (why is None)
    assert "s3cret" not in (said or "")


@pytest.mark.parametrize(
    "given",
    [
        {"RANK": "1"},
        {"RANK": "-1", "SKELETONHUNTER_TASK_ID": "t"},
        {"RANK": "1", "SKELETONHUNTER_TASK_ID": "a b"},
        {"RANK": "999999999", "SKELETONHUNTER_TASK_ID": "t"},
        {"RANK": "1", "SKELETONHUNTER_TASK_ID": "t", "SKELETONHUNTER_ENDPOINT_IDS": "a>b"},
        {"WORLD_SIZE": "1", "SKELETONHUNTER_TASK_ID": "t"},
    ],
)
def test_a_process_without_rank_or_job_is_none(given: dict[str, str]) -> None:
    """Nor one whose names could be no ids."""
    assert rank_of(environment(**given), task_id=None, dump_base=None) is None


def test_a_world_too_small_for_the_rank_is_not_known() -> None:
    """One of the two is wrong; the rank decides where its dumps are."""
    found = rank_of(environment(RANK="4", WORLD_SIZE="4"), task_id="t", dump_base=None)
    assert found is not None
    assert found.world_size is None


def job(rank: int) -> JobRank:
    """Return a rank of one job."""
    return JobRank(task_id="t", rank=rank, world_size=None, endpoint_ids=(), dump_base=None)


def test_children_of_a_rank_are_not_the_rank() -> None:
    """Neither workers that load data nor the shell that started it."""
    found = {10: job(0), 11: job(0), 12: job(0), 13: job(1)}
    readings = {
        10: reading(10, 1, "bash"), 11: reading(11, 10), 12: reading(12, 11), 13: reading(13, 1),
    }  # fmt: skip
    assert leaders(found, readings) == {("t", 0): 11, ("t", 1): 13}


def test_of_two_attempts_the_later_counts() -> None:
    """While the former ends."""
    found = {10: job(0), 90: job(0)}
    assert leaders(found, {10: reading(10, 1), 90: reading(90, 1)}) == {("t", 0): 90}
