"""How `pytest -n 2` distributes the tests over two processes.

One process runs the integration tests that measure time, which mostly wait. The other runs the
files of all other tests at low priority, and whichever process is done first takes the next file.
"""

import os
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

INTEGRATION: Final = "tests/integration/"
# These measure no time. They run with the others, so that both processes take about as long.
TIMELESS: Final = tuple(
    f"{INTEGRATION}test_{name}.py"
    for name in ("arena_kafka", "doctor_kafka", "registry", "security", "skeleton_kafka")
)
PROCESSES_ENV: Final = "PYTEST_XDIST_WORKER_COUNT"
# A tenth of the CPU share of a process with nice 0.
NICE: Final = 10


def group_of(nodeid: str) -> str:
    """Return the name of the group of tests that one process runs as a whole.

    >>> group_of("tests/integration/test_worker.py::test_x")
    'tests/integration/'
    >>> group_of("tests/unit/test_y.py::test_y")
    'tests/unit/test_y.py'
    """
    return INTEGRATION if measures_time(nodeid) else nodeid.partition("::")[0]


def measures_time(nodeid: str) -> bool:
    """Return whether a test may fail because others take the processor."""
    return nodeid.startswith(INTEGRATION) and not nodeid.startswith(TIMELESS)


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
    """Move the integration tests to the front, then the files with slow tests.

    With a long group at the end one process would wait for the other.
    """
    if PROCESSES_ENV not in os.environ:
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (not measures_time(item.nodeid), item.path not in slow))


def step_aside(nodeid: str) -> None:
    """Lower the priority of this process if it runs tests that measure no time."""
    beside = os.environ.get(PROCESSES_ENV, "1") != "1"
    if beside and not measures_time(nodeid) and os.nice(0) == 0:
        os.nice(NICE)
