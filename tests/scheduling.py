"""How `pytest -n 4` distributes the tests over four processes.

Two processes run the integration tests that measure time, which mostly wait: one those with labs,
of which a machine holds one at a time, the other the rest. The others run the files of all other
tests at low priority, and whichever process is done first takes the next file. Tests that load
the whole machine run while no other test measures time.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

INTEGRATION: Final = "tests/integration/"
# These measure no time. They run with the others, so that all processes take about as long.
TIMELESS: Final = tuple(
    f"{INTEGRATION}test_{name}.py"
    for name in (
        "access", "arena_kafka", "doctor_kafka", "import_csv_kafka", "recording_kafka",
        "registry", "sql_recipes", "tapping_recipes", "topics_apply", "unreadable_batch",
    )
)  # fmt: skip
# Others that do: a process at low priority sends what it has counted already a while later.
TIMED: Final = ("tests/contract/test_rate.py",)
# Labs, and as many others as make both groups of about the same length.
LABS: Final = tuple(
    f"{INTEGRATION}test_{name}"
    for name in (
        "agent_ecmp_netns", "agent_namespaces", "agent_netns", "agent_overlay",
        "agent_unprivileged", "bridge", "broker", "demo", "lab_", "localizer", "overlay",
        "skeleton",
    )
)  # fmt: skip
# These take all processors, and would hold up what another test measures.
ALONE: Final = (f"{INTEGRATION}test_agent_flood.py",)
# Takes half a minute, though none of its tests is slow.
LONG: Final = "tests/unit/streams/detectors/test_detectors_conformance.py"
PROCESSES_ENV: Final = "PYTEST_XDIST_WORKER_COUNT"
# A tenth of the CPU share of a process with nice 0.
NICE: Final = 10


def group_of(nodeid: str) -> str:
    """Return the name of the group of tests that one process runs as a whole.

    >>> group_of("tests/integration/test_worker.py::test_x")
    'tests/integration/'
    >>> group_of("tests/integration/test_lab_up.py::test_x")
    'tests/integration/ labs'
    >>> group_of("tests/unit/test_y.py::test_y")
    'tests/unit/test_y.py'
    """
    if not measures_time(nodeid):
        return nodeid.partition("::")[0]
    return f"{INTEGRATION} labs" if nodeid.startswith(LABS) else INTEGRATION


def measures_time(nodeid: str) -> bool:
    """Return whether a test may fail because others take the processor."""
    if nodeid.startswith(TIMED):
        return True
    return nodeid.startswith(INTEGRATION) and not nodeid.startswith(TIMELESS)


@contextmanager
def turn(folder: Path, nodeid: str) -> Iterator[None]:
    """Run a test that measures time beside others of its kind, or alone if it is of `ALONE`.

    Parameters
    ----------
    folder
        Is shared by the processes of one run of the tests.
    """
    if not measures_time(nodeid):
        yield
        return
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        # Who waits to be alone keeps the door shut: otherwise others would go in one by one.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if nodeid.startswith(ALONE) else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Closing is not enough where a test has left a forked process.
            fcntl.flock(room, fcntl.LOCK_UN)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that keeps groups together; None with another `--dist`."""
    if config.getoption("dist") != "load":
        return None
    # Groups are given out in the order of collection.
    config.option.loadscopereorder = False
    scheduling = LoadScopeScheduling(config, log)
    # By default it keeps the tests of a module together.
    scheduling._split_scope = group_of
    return scheduling


def longest_first(items: list[pytest.Item]) -> None:
    """Move the integration tests to the front, then the files with slow tests and the long one.

    With a long group at the end one process would wait for the other.
    """
    if PROCESSES_ENV not in os.environ:
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(
        key=lambda item: (
            not measures_time(item.nodeid),
            item.path not in slow and not item.nodeid.startswith(LONG),
        )
    )


def step_aside(nodeid: str) -> None:
    """Lower the priority of this process if it runs tests that measure no time."""
    beside = os.environ.get(PROCESSES_ENV, "1") != "1"
    if beside and not measures_time(nodeid) and os.nice(0) == 0:
        os.nice(NICE)
