"""`job diagnose`: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ops.cli.app import build
from ops.cli.errors import CliError
from tests.collective_dumps import unpack
from tests.flight_recorder import BEGIN_NS, Rank, job


def diagnose(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(build(), ["job", "diagnose", *map(str, arguments)])


def write(folder: Path, ranks: list[Rank]) -> Path:
    """Write the dumps of some ranks."""
    for rank in ranks:
        (folder / f"fr_{rank.rank}").write_bytes(rank.pickled())
    return folder


def test_a_hang_is_told_to_people(tmp_path: Path) -> None:
    """Who, in what, since when, why and what next; exit code 1."""
    done = diagnose(unpack("stalled", tmp_path).folder)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert "rank " in lines[2]
    assert "never launched it (sure)" in lines[2]
    for title in ("in ", "waiting ", "since ", "because ", "next ", "launched "):
        assert any(line.strip().startswith(title) for line in lines)


def test_machines_get_one_document(tmp_path: Path) -> None:
    """With all findings and groups."""
    case = unpack("type", tmp_path)
    done = diagnose(case.folder, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert document["hangs"]
    (finding,) = document["findings"]
    assert (finding["class"], finding["ranks"]) == ("desynchronised", case.truth["culprits"])
    assert all(group["inferred"] for group in document["groups"] if group["name"] != "0")


def test_a_slow_rank_is_told_where_nothing_hangs(tmp_path: Path) -> None:
    """Exit code 1 as well."""
    case = unpack("slow", tmp_path)
    done = diagnose(case.folder, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["hangs"]) == (1, False)
    assert document["slow_rank"]["rank"] == case.truth["culprits"][0]
    assert "again and again" in diagnose(case.folder).stdout


def test_nothing_wrong_is_exit_code_0(tmp_path: Path) -> None:
    """And one sentence."""
    done = diagnose(write(tmp_path, job()))
    assert done.exit_code == 0
    assert "nothing hangs" in done.stdout


def test_ranks_that_are_missing_are_exit_code_5(tmp_path: Path) -> None:
    """If nothing else was found; the size may come from the command line."""
    done = diagnose(write(tmp_path, job()), "--world-size", "5")
    assert done.exit_code == 5
    assert "no dump of rank 4" in done.stdout


def test_a_damaged_dump_is_exit_code_4_and_the_rest_is_used(tmp_path: Path) -> None:
    """The finding stands on standard output, the file on standard error."""
    ranks = job()
    for rank in ranks[1:]:
        rank.launch("0", state="started")
    write(tmp_path, ranks)
    (tmp_path / "fr_0").write_bytes(ranks[0].pickled()[:-5])
    done = diagnose(tmp_path)
    assert done.exit_code == 4
    assert "rank 0: no dump that can be used (likely)" in done.stdout
    assert "damaged: fr_0: the pickle is cut short" in done.stderr


def test_a_dump_of_an_old_attempt_is_left_out(tmp_path: Path) -> None:
    """If it has none of the operations of the others; its rank is not one that left none."""
    ranks = job()
    old = Rank(3, ranks[3].groups, clock_ns=-3_600 * 10**9).launch("0")
    for entry in old.entries:
        entry["collective_seq_id"] = 900
    for rank in ranks[:3]:
        rank.launch("0", state="started").time_out()
    done = diagnose(write(tmp_path, [*ranks[:3], old]))
    assert "rank 3: no dump that can be used (likely)" in done.stdout
    assert "the dump of rank 3 was left out as one of an earlier attempt" in done.stdout
    assert "left out: fr_3: ten minutes or more before all others" in done.stderr
    assert done.exit_code == 1


def test_a_clock_that_is_hours_off_leaves_no_dump_out(tmp_path: Path) -> None:
    """Rank 2 has it, and rank 1 is behind; were it rank 1, it would be named all the same."""
    for wrong, certainty in ((2, "sure"), (1, "likely")):
        ranks = [
            Rank(r, {"0": [0, 1, 2, 3]}, clock_ns=-3_600 * 10**9 * (r == wrong)) for r in range(4)
        ]
        for rank in ranks:
            rank.launch("0")
            if rank.rank != 1:
                rank.launch("0", state="started").time_out()
        done = diagnose(write(tmp_path, ranks))
        assert f"rank 1: never launched it ({certainty})" in done.stdout
        assert f"warning: fr_{wrong}: its last launch was ten minutes or more" in done.stderr
        assert "left out" not in done.stderr
        assert ("may be of an earlier attempt" in done.stdout) == (wrong == 1)


def test_clocks_that_are_apart_are_no_old_attempt(tmp_path: Path) -> None:
    """Ninety seconds are usual, and change nothing."""
    ranks = [Rank(r, {"0": [0, 1, 2, 3]}, clock_ns=(r - 1) * 90 * 10**9) for r in range(4)]
    for rank in ranks:
        rank.launch("0")
    for rank in ranks[:3]:
        rank.launch("0", state="started").time_out()
    done = diagnose(write(tmp_path, ranks))
    assert "rank 3: never launched it (sure)" in done.stdout


def test_members_of_groups_can_be_given(tmp_path: Path) -> None:
    """A member that never launched anything is seen only then."""
    ranks = [Rank(r, {"7": [0, 1]}) for r in range(2)]
    document = ranks[0].launch("7", state="started").time_out().document()
    document["pg_config"] = {}
    (tmp_path / "fr_0").write_text(json.dumps(document))
    (tmp_path / "fr_1").write_text(json.dumps(ranks[1].document() | {"pg_config": {}}))
    groups = tmp_path.parent / "groups.json"
    groups.write_text('{"7": [0, 1]}')
    assert "all launched it" in diagnose(tmp_path).stdout
    assert "rank 1: never launched it" in diagnose(tmp_path, "--groups", groups).stdout


@pytest.mark.parametrize("text", ["", "[]", '{"7": 1}', '{"7": [-1]}', '{"7": [true]}'])
def test_wrong_groups_are_wrong_usage(tmp_path: Path, text: str) -> None:
    """Named by their file."""
    groups = tmp_path / "groups.json"
    groups.write_text(text)
    done = diagnose(tmp_path, "--groups", groups)
    assert isinstance(done.exception, CliError)
    assert done.exception.exit_code == 2
    assert "groups.json" in str(done.exception)


def test_a_folder_without_dumps_is_wrong_usage(tmp_path: Path) -> None:
    """As is one with two of a rank."""
    done = diagnose(tmp_path)
    assert isinstance(done.exception, CliError)
    assert done.exception.exit_code == 2


def test_times_are_the_clock_s_of_a_rank(tmp_path: Path) -> None:
    """In UTC."""
    ranks = job(steps=1)
    ranks[0].launch("0", state="started").time_out()
    done = diagnose(write(tmp_path, ranks))
    assert BEGIN_NS == 1_760_000_000 * 10**9
    assert "2025-10-09T08:53:20.010Z by the clock of rank 0" in done.stdout
    assert "PyTorch has given it up" in done.stdout


def test_a_page_is_written_beside(tmp_path: Path) -> None:
    """Where it cannot be, that is wrong usage."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    page = tmp_path / "hang.html"
    assert diagnose(write(dumps, job()), "--html", page).exit_code == 0
    assert page.read_text().startswith("<!doctype html>")
    done = diagnose(dumps, "--html", tmp_path / "none" / "hang.html")
    assert isinstance(done.exception, CliError)
    assert done.exception.exit_code == 2
    assert "nothing hangs" in done.stdout


def test_what_the_command_line_gets_wrong_is_told(tmp_path: Path) -> None:
    """Names of groups that no dump has, and fewer ranks than there are dumps."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    groups = tmp_path / "groups.json"
    groups.write_text('{"tp\\u001b": [0, 1]}')
    done = diagnose(write(dumps, job()), "--groups", groups, "--world-size", 2)
    assert "warning: --groups: no dump has tp\\x1b; groups are 0\n" in done.stderr
    assert "warning: --world-size 2: there is a dump of rank 3\n" in done.stderr


def test_one_dump_is_no_dumps(tmp_path: Path) -> None:
    """And many candidates are short."""
    ranks = [Rank(r, {"0": list(range(8))}) for r in range(8)]
    alone = Rank(0, ranks[0].groups).launch("0")
    assert "1 dump of 8 ranks, 1 group\n" in diagnose(write(tmp_path, [alone])).stdout
    for rank in ranks:
        rank.launch("0", sizes=[[8 + rank.rank % 2]], state="started").time_out()
    assert "may be    one of ranks 0–7\n" in diagnose(write(tmp_path, ranks)).stdout


def test_dumps_without_operations_say_nothing(tmp_path: Path) -> None:
    """Exit code 2, and 4 where the only dumps are damaged; never that nothing hangs."""
    write(tmp_path, job(steps=0))
    done = diagnose(tmp_path)
    assert done.exit_code == 2
    assert "nothing can be said" in done.stdout
    assert "nothing hangs" not in done.stdout
    assert json.loads(diagnose(tmp_path, "--json").stdout)["hangs"] is None
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-5])
    done = diagnose(tmp_path)
    assert done.exit_code == 4
    assert "nothing can be said" in done.stdout
