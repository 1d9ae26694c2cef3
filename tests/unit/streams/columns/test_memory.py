"""Pages of an array that go back to the system."""

import subprocess
import sys

import numpy as np
import pytest

from streams.columns import memory

FILL_AND_EMPTY = """
import mmap
import numpy as np
from streams.columns import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE

array = np.ones(64 * 2**20, np.uint8)
before = resident()
memory.empty(array[2**20 + 5:])
print((before - resident()) // 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what is resident is read from /proc")
def test_an_array_is_emptied() -> None:
    """Its pages are gone while it is there."""
    command = [sys.executable, "-c", FILL_AND_EMPTY]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(found.stdout) >= 60


@pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 100_000])
def test_what_lies_beside_an_emptied_array_stays(size: int) -> None:
    """Wherever it begins and ends; it can be written again."""
    whole = np.ones(120_000, np.uint8)
    for first in (0, 1, 4_000, 10_007):
        whole[:] = 1
        memory.empty(whole[first : first + size])
        assert whole[:first].all()
        assert whole[first + size :].all()
        whole[first : first + size] = 2
        assert (whole[first : first + size] == 2).all()
