"""When the garbage collector runs, and what goes back to the system."""

import gc
import platform
import subprocess
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.process import memory

GROW_AND_FREE = """
import sys
import numpy as np
from schemas.process import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "given":
    memory.return_large_arrays()
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


ARENAS = """
import ctypes, sys, tempfile, threading
from schemas.process import memory

if sys.argv[1] == "one":
    memory.use_one_arena()
together = threading.Barrier(6)

def allocate():
    together.wait()
    held = [bytearray(10_000) for _ in range(100)]
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    opened = ctypes.c_void_p(c.fopen(file.name.encode(), b"w"))
    c.malloc_info(0, opened)
    c.fclose(opened)
    print(file.read().count(b"<heap "))
"""


class Knot:
    """Holds itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def settled() -> Iterator[None]:
    """Begin and settle for a test; things are as they were afterwards."""
    gc.collect()
    memory.collect_on_demand()
    memory.leave_out_present()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("settled")
def test_a_pass_is_made_when_it_is_asked_for_and_much_is_new() -> None:
    """Not by itself, however much is new, and not while little is."""
    knot = weakref.ref(Knot())
    memory.collect_if_due()
    assert knot() is not None
    new = [[place] for place in range(memory.YOUNG)]
    assert knot() is not None
    memory.collect_if_due()
    assert knot() is None
    assert len(new) == memory.YOUNG


@pytest.mark.usefixtures("settled")
def test_what_outlived_a_pass_is_looked_at_again_after_some() -> None:
    """A knot that is tied later, of things that were there before, goes as well."""
    kept = [Knot()]
    knot = weakref.ref(kept[0])
    for number in range(memory.OLDER + 1):
        if number == 1:
            kept.clear()
        # Some lists are kept by Python itself for those to come, which then do not count.
        new = [[place] for place in range(memory.YOUNG + 1_000)]
        memory.collect_if_due()
        # What goes is taken off what came.
        del new
    assert knot() is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told")
def test_large_arrays_go_back_to_the_system() -> None:
    """48 MB that are freed are gone."""
    command = [sys.executable, "-c", GROW_AND_FREE, "given"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(found.stdout) < 6


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
@pytest.mark.parametrize(("how", "least", "most"), [("as_ever", 3, 100), ("one", 1, 1)])
def test_all_threads_allocate_from_one_arena(how: str, least: int, most: int) -> None:
    """As ever each has its own, up to eight for a core."""
    command = [sys.executable, "-c", ARENAS, how]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least <= int(found.stdout) <= most


SCATTERED = """
import sys
from schemas.process import memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "by_page":
    assert memory.allocate_by_page()
before = resident()
held = [(str(n), (n,)) for n in range(300_000)]
most = resident()
# One of a thousand stays.
held = held[::1_000]
memory.return_free()
print(round(100 * (resident() - before) / (most - before)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns free memory")
@pytest.mark.parametrize(("how", "least", "most"), [("as_ever", 80, 100), ("by_page", 0, 20)])
def test_memory_between_objects_that_stay_is_returned(how: str, least: int, most: int) -> None:
    """Python's own allocator keeps a megabyte for each of them."""
    command = [sys.executable, "-c", SCATTERED, how]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert least <= int(found.stdout) <= most


@pytest.mark.parametrize("option", ["-Xdev", "-Xtracemalloc"])
def test_allocators_of_tools_stay(option: str) -> None:
    """They count, or put marks around what they allocate."""
    code = "from schemas.process import memory; print(memory.allocate_by_page())"
    command = [sys.executable, option, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_free_memory_is_returned_every_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds; less often where it takes long."""
    returned: list[float] = []
    now_s, takes_s = 0.0, 0.0

    def return_free() -> None:
        nonlocal now_s
        returned.append(now_s)
        now_s += takes_s

    monkeypatch.setattr(memory, "return_free", return_free)
    returner = memory.Returner(lambda: now_s, lambda: now_s)
    for _ in range(35):
        assert returner.observe_count(5) == (now_s in (10, 20, 30))
        now_s += 1.0
    returned.clear()
    takes_s = 0.5
    for _ in range(200):
        returner.observe_count(5)
        now_s += 1.0
    assert returned == [40.0, 140.5]


@pytest.mark.usefixtures("settled")
def test_free_memory_is_returned_once_after_much_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a few objects, nor for a small share, nor again for the same fall."""
    returned: list[None] = []
    monkeypatch.setattr(memory, "return_free", lambda: returned.append(None))
    returner = memory.Returner(lambda: 0.0, lambda: 0.0)
    counts = [1_000_000, 950_000, 890_000, 880_000, 0, 0, 3_000, 0, 5_000, 0]
    assert [returner.observe_count(n) for n in counts] == [
        False, False, True, False, True, False, False, False, False, True
    ]  # fmt: skip
    assert len(returned) == 3


class Tables:
    """Holds tables of several kinds."""

    def __init__(self, entries: int) -> None:
        self.table = {f"{n}": n for n in range(entries)}
        self.names = set(self.table)
        self.ordered = OrderedDict(self.table)
        self.made = defaultdict(list, {name: [name] for name in self.table})
        self.other = [0] * entries


def test_tables_that_are_nearly_empty_become_small() -> None:
    """They hold what they held, and a full one stays the object that it is."""
    full, emptied = Tables(10_000), Tables(10_000)
    for name in list(emptied.table)[10:]:
        del emptied.table[name], emptied.ordered[name], emptied.made[name]
        emptied.names.discard(name)
    same = dict(vars(full))
    held = {name: (type(t), t.copy()) for name, t in vars(emptied).items()}
    memory.shrink_tables(full)
    memory.shrink_tables(emptied)
    assert all(vars(full)[name] is table for name, table in same.items())
    assert {name: (type(t), t) for name, t in vars(emptied).items()} == held
    assert sys.getsizeof(emptied.table) < 1_000
    assert sys.getsizeof(emptied.names) < 5_000
    assert emptied.made["new"] == []


def test_tables_whose_entries_come_and_go_stay_as_large_as_new_ones() -> None:
    """Python doubles one from which entries had gone when it was full."""
    owner = Tables(3_000)
    tables: list[dict[str, Any]] = [owner.table, owner.ordered, owner.made]
    new = [sys.getsizeof(table) for table in tables]
    for n in range(3_000, 9_000):
        for table in tables:
            del table[f"{n - 3_000}"]
            table[f"{n}"] = n
    assert all(sys.getsizeof(t) > 1.5 * size for t, size in zip(tables, new, strict=True))
    held = [list(table) for table in tables]
    memory.shrink_tables(owner)
    tables = [owner.table, owner.ordered, owner.made]
    assert [sys.getsizeof(table) for table in tables] == new
    assert [list(table) for table in tables] == held
