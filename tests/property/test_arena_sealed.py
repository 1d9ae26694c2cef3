"""Laws of the sealed worlds: the same seed gives the same bytes, in any process."""

import hashlib
import os
import subprocess
import sys

import pytest

from arena.sealed.draw import FAMILIES, draw
from tests import ROOT

_SCRIPT = """
import dataclasses, hashlib, sys
from arena.sealed.draw import draw
# Seven minutes: one of them with what was drawn.
world = dataclasses.replace(draw(int(sys.argv[1]), sys.argv[2]), duration_s=420)
digest = hashlib.sha256(repr([sorted(i.components) for i in world.injected]).encode())
for count, timed in enumerate(world.records()):
    if count % 5 == 0:
        digest.update(repr(timed).encode())
print(digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_bytes_whatever_the_hash_seed(family: str) -> None:
    """Two processes with different hashes of strings agree on truth and records."""
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, "8", family],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        digests.add(done.stdout)
    assert len(digests) == 1


def test_a_world_can_be_read_again() -> None:
    """Its records are simulated anew, and are the same."""
    world = draw(9, "gray")

    def digest() -> str:
        found = hashlib.sha256()
        for count, timed in enumerate(world.records()):
            found.update(repr(timed).encode())
            if count > 5_000:
                break
        return found.hexdigest()

    assert digest() == digest()
