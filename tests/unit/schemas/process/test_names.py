"""Equal names are one object for as long as somebody holds it."""

import subprocess
import sys

from schemas.process import names

# Names that come and go, as of containers; in a process of its own.
COME_AND_GO = """
import sys
from schemas.process import names

held = []
for turn in range(200):
    held = [names.shared(f"container-{turn}-{n}") for n in range(1_000)]
    names.forget_unused()
print(len(names._SHARED.table), sys.getsizeof(names._SHARED.table))
"""


def made(text: str) -> str:
    """Return a string that is equal to a literal, but no literal."""
    return "".join(list(text))


def test_equal_names_are_one_object() -> None:
    """Also after those that nobody holds are forgotten."""
    first = names.shared(made("agent-1"))
    assert names.shared(made("agent-1")) is first
    names.forget_unused()
    assert names.shared(made("agent-1")) is first


def test_names_that_nobody_holds_are_forgotten() -> None:
    """A name is held by its holders alone, never by the table."""
    kept = [names.shared(made(f"kept-{n}")) for n in range(3)]
    for n in range(3):
        names.shared(made(f"gone-{n}"))
    names.forget_unused()
    table = names._SHARED.table
    assert [name for name in table if name.startswith("kept-")] == kept
    assert not [name for name in table if name.startswith("gone-")]


def test_the_table_stays_as_large_as_what_is_held() -> None:
    """Of 200,000 names that came and went a thousand are there."""
    command = [sys.executable, "-c", COME_AND_GO]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    held, size_bytes = map(int, found.stdout.split())
    assert held == 1_000
    assert size_bytes < 64_000
