"""Ranks among the processes of a procfs made of files."""

from pathlib import Path

import pytest

from probers.collector.finder import FORGET_SCANS, RankFinder
from probers.collector.procfs import MAX_ENVIRONMENT_BYTES, ProcFs


class Tree:
    """A procfs as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "stat").write_text("cpu 0\nbtime 1000\n")
        (root / "self").mkdir()

    def add(self, pid: int, environment: str, *, parent: int = 1, start: int = 100) -> None:
        """Add a process, or let one run another program."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "environ").write_bytes(environment.replace(" ", "\0").encode())
        zeros = " ".join(["0"] * 7)
        (folder / "stat").write_text(
            f"{pid} (python3) S {parent} {zeros} 0 0 5 5 0 0 20 0 1 0 {start} 0\n"
        )

    def remove(self, pid: int) -> None:
        """Let a process end."""
        for file in (self.root / str(pid)).iterdir():
            file.unlink()
        (self.root / str(pid)).rmdir()

    def finder(self, max_ranks: int = 8, only_task: str | None = None) -> RankFinder:
        """Return a finder of ranks."""
        return RankFinder(
            ProcFs(self.root), task_id="t", dump_base="/d/rank_", max_ranks=max_ranks,
            only_task=only_task,
        )  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give a procfs without a rank."""
    return Tree(tmp_path)


def test_ranks_come_and_go(tree: Tree) -> None:
    """A process with another start under the same number is another one."""
    tree.add(10, "RANK=0 WORLD_SIZE=2")
    tree.add(11, "RANK=1 WORLD_SIZE=2")
    tree.add(12, "HOME=/root")
    finder = tree.finder()
    assert {key: p.pid for key, (_, p) in finder.scan().ranks.items()} == {
        ("t", 0): 10, ("t", 1): 11,
    }  # fmt: skip
    tree.remove(10)
    tree.remove(11)
    tree.add(11, "RANK=5", start=900)
    assert {key: p.pid for key, (_, p) in finder.scan().ranks.items()} == {("t", 5): 11}


def test_a_process_that_runs_another_program_later_is_found(tree: Tree) -> None:
    """At once if it does so early, else after a minute."""
    tree.add(10, "HOME=/root")
    finder = tree.finder()
    assert not finder.scan().ranks
    tree.add(10, "RANK=0")
    assert finder.scan().ranks
    tree.add(20, "HOME=/root")
    for _ in range(5):
        finder.scan()
    tree.add(20, "RANK=1")
    scans = [("t", 1) in finder.scan().ranks for _ in range(FORGET_SCANS)]
    assert not scans[0]
    assert scans[-1]


def test_too_many_ranks_are_counted(tree: Tree) -> None:
    """The lowest are kept."""
    for rank in range(5):
        tree.add(10 + rank, f"RANK={rank}")
    scan = tree.finder(max_ranks=3).scan()
    assert (sorted(scan.ranks), scan.left_out) == ([("t", 0), ("t", 1), ("t", 2)], 2)


def test_ranks_of_no_known_job_are_told_of(tmp_path: Path) -> None:
    """Whoever starts the job forgot to name it."""
    tree = Tree(tmp_path)
    tree.add(10, "RANK=0 WORLD_SIZE=2")
    finder = RankFinder(ProcFs(tmp_path), task_id=None, dump_base=None, max_ranks=8)
    scan = finder.scan()
    assert not scan.ranks
    assert scan.unused == {"there is no SKELETONHUNTER_TASK_ID, and no --task-id"}


@pytest.mark.parametrize("kept", [len("RANK=1"), len("RANK=12 X")])
def test_a_variable_that_is_cut_is_not_read(tree: Tree, kept: int) -> None:
    """Of an environment beyond what is read."""
    before = "A=" + "a" * (MAX_ENVIRONMENT_BYTES - kept - 3) + " "
    tree.add(10, before + "RANK=12 X=1 ")
    assert list(tree.finder().scan().ranks) == ([] if kept == len("RANK=1") else [("t", 12)])


def test_of_one_job_alone(tree: Tree) -> None:
    """Ranks of others are left alone, and are no trouble."""
    tree.add(10, "RANK=0 WORLD_SIZE=2 SKELETONHUNTER_TASK_ID=mine")
    tree.add(11, "RANK=0 WORLD_SIZE=2 SKELETONHUNTER_TASK_ID=theirs")
    tree.add(12, "RANK=1 WORLD_SIZE=2")
    scan = tree.finder(only_task="mine").scan()
    assert (set(scan.ranks), scan.unused, scan.left_out) == ({("mine", 0)}, set(), 0)
