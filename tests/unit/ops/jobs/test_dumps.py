"""Folders of dumps: of one job, of several, with other files and damaged ones among them."""

import json
import os
from pathlib import Path

import pytest

from ops.jobs.dumps import DumpsError, read_dumps
from probers.collectives.flight_recorder import Dump, read_dump
from tests.flight_recorder import BEGIN_NS, MESH, WORLD, Rank, job


def write(folder: Path, ranks: list[Rank], form: str = "host{host}_fr_{rank}") -> None:
    """Write the dumps of some ranks under names of a form."""
    for rank in ranks:
        path = folder / form.format(host=17 + rank.rank // 2, rank=rank.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rank.pickled())


def test_hosts_in_names_and_folders_do_not_matter(tmp_path: Path) -> None:
    """A folder for each host, or a name in the file's."""
    write(tmp_path / "a", job(), "host{host}_fr_{rank}")
    write(tmp_path / "b", job(), "node-{host}/rank{rank}.pkl")
    for folder in ("a", "b"):
        assert {s.rank for s in read_dumps(tmp_path / folder).snapshots} == {0, 1, 2, 3}


def test_two_dumps_of_a_rank_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    """Two jobs with the same names of groups, or two attempts."""
    write(tmp_path, job(), "job1_{rank}")
    write(tmp_path, job(), "job2_{rank}")
    with pytest.raises(DumpsError, match="rank 0 has two dumps, job1_0 and job2_0"):
        read_dumps(tmp_path)
    found = read_dumps(tmp_path, only="job2_*")
    assert [s.source for s in found.snapshots] == ["job2_0", "job2_1", "job2_2", "job2_3"]


def test_what_lies_beside_a_dump_of_a_running_job_is_none(tmp_path: Path) -> None:
    """The mark of a rank that lives, and a dump that is being written."""
    write(tmp_path, job(), "fr_trace_rank_{rank}")
    (tmp_path / "fr_trace_rank_1.alive").write_text("alive\n")
    (tmp_path / "fr_trace_rank_1.77.tmp").write_bytes(job()[1].pickled())
    found = read_dumps(tmp_path)
    assert len(found.snapshots) == 4
    assert not found.damaged
    assert not found.left_out


def test_what_cannot_be_used_is_told_and_the_rest_is_used(tmp_path: Path) -> None:
    """A log is left out, a dump that was cut short is damaged."""
    write(tmp_path, job()[:3])
    (tmp_path / "train.log").write_text("rank 3 starts\n")
    (tmp_path / "host18_fr_3").write_bytes(Rank(3, WORLD).launch("0").pickled()[:-9])
    found = read_dumps(tmp_path)
    assert {s.rank for s in found.snapshots} == {0, 1, 2}
    assert list(found.left_out) == ["train.log"]
    assert found.damaged == {"host18_fr_3": "the pickle is cut short"}


def test_a_dump_holds_as_long_as_the_file_beside_it_is_touched(tmp_path: Path) -> None:
    """As the training script's helper does; that file is no dump that was left out."""
    write(tmp_path, job(), "rank_{rank}")
    os.utime(tmp_path / "rank_0", (1, BEGIN_NS // 10**9 + 10))
    alive = tmp_path / "rank_0.alive"
    alive.write_text("alive\n")
    os.utime(alive, (1, BEGIN_NS // 10**9 + 60))
    found = read_dumps(tmp_path)
    assert not found.left_out
    taken = {s.rank: s.taken_at for s in found.snapshots}
    assert taken[0] == BEGIN_NS // 1_000 + 60 * 10**6


def test_what_a_reader_should_know_bears_the_file_s_name(tmp_path: Path) -> None:
    """Such as a name that contradicts the content."""
    (tmp_path / "dump_of_host_17").write_bytes(Rank(2, MESH).launch("0").launch("2").pickled())
    (warning,) = read_dumps(tmp_path).warnings
    assert warning.startswith("dump_of_host_17: its name says rank 17")


@pytest.mark.parametrize("only", [None, "x*"])
def test_a_folder_without_dumps_is_said(tmp_path: Path, only: str | None) -> None:
    """Also one that is not there."""
    (tmp_path / "y").write_text("no dump")
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DumpsError, match="holds no dumps"):
            read_dumps(folder, only)


def test_names_of_files_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """Nor begin a line of their own."""
    write(tmp_path, job())
    (tmp_path / "\x1b[31mred\nfake: line.log").write_text("no dump")
    (tmp_path / "\udcff.log").write_text("no dump")
    assert sorted(read_dumps(tmp_path).left_out) == ["\\udcff.log", "\\x1b[31mred\\nfake: line.log"]


@pytest.mark.parametrize("error", [ValueError, RecursionError, ZeroDivisionError])
def test_what_no_check_foresaw_loses_one_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """It is damaged; the other ranks are used."""
    write(tmp_path, job())

    def fails_at_1(content: bytes, name: str, *, taken_at: int | None = None) -> Dump:
        if name.endswith("_1"):
            raise error("\x1b[31m")
        return read_dump(content, name, taken_at=taken_at)

    monkeypatch.setattr("ops.jobs.dumps.read_dump", fails_at_1)
    found = read_dumps(tmp_path)
    assert {s.rank for s in found.snapshots} == {0, 2, 3}
    assert list(found.damaged) == ["host17_fr_1"]
    assert "\x1b" not in found.damaged["host17_fr_1"]


def test_a_rank_far_beyond_the_number_of_dumps_is_told(tmp_path: Path) -> None:
    """The name ends in a time."""
    for rank in job()[:2]:
        content = json.dumps(rank.document() | {"pg_config": {}})
        (tmp_path / f"fr{rank.rank}_1131{rank.rank:02}").write_text(content)
    (warning,) = read_dumps(tmp_path).warnings
    assert warning.startswith("fr1_113101: taken for rank 113,101, of 2 dumps")
