"""`pytest -n 2`: one process runs the integration tests, the other all other tests.

Integration tests mostly wait, and they measure time: the process of the others runs at low
priority. Each half keeps the order in which it would run alone.
"""

import os
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

INTEGRATION: Final = "tests/integration/"
# These measure no time. They run with the others, so that both halves take about as long.
TIMELESS: Final = tuple(
    f"{INTEGRATION}test_{name}.py"
    for name in ("arena_kafka", "doctor_kafka", "registry", "security", "skeleton_kafka")
)
PROCESSES_ENV: Final = "PYTEST_XDIST_WORKER_COUNT"
# A tenth of the CPU share of a process with nice 0.
NICE: Final = 10


def half_of(nodeid: str) -> str:
    """Return the name of the half that a test belongs to.

    >>> half_of("tests/integration/test_worker.py::test_x"), half_of("tests/unit/test_y.py::test_y")
    ('integration', 'others')
    """
    timed = nodeid.startswith(INTEGRATION) and not nodeid.startswith(TIMELESS)
    return "integration" if timed else "others"


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives each of two processes one half; None with another `--dist`."""
    if config.getoption("dist") != "load":
        return None
    halves = LoadScopeScheduling(config, log)
    # By default it keeps the tests of a module together.
    halves._split_scope = half_of
    return halves


def step_aside(nodeid: str) -> None:
    """Lower the priority of this process if it runs the half that computes."""
    beside = os.environ.get(PROCESSES_ENV, "1") != "1"
    if beside and half_of(nodeid) == "others" and os.nice(0) == 0:
        os.nice(NICE)
