"""What goes back to the system when it is freed."""

import platform
import subprocess
import sys

import pytest

GROW_AND_FREE = """
import sys
import numpy as np
from streams import heap

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "given":
    heap.give_back()
# The first one that is freed teaches glibc to keep the next ones.
np.ones(8 * 2**20, np.uint8)
before = resident()
kept = []
for _ in range(12):
    arrays = [np.ones(6 * 2**20, np.uint8) for _ in range(8)]
    kept.append(b"x" * 4096)
    del arrays
print((resident() - before) // 2**20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_large_arrays_go_back_to_the_system() -> None:
    """48 MB that are freed are gone."""
    command = [sys.executable, "-c", GROW_AND_FREE, "given"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 6
