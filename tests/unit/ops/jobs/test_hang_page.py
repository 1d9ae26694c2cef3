"""The page of a job: all ranks and groups, nothing that a dump could run."""

from localizer.collectives.diagnosis import diagnose
from ops.jobs.hang_page import MAX_ROWS, as_page
from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import Rank, job


def page(ranks: list[Rank]) -> str:
    """Return the page of some dumps."""
    dumps = [read_dump(rank.pickled(), f"d_{rank.rank}") for rank in ranks]
    return as_page(diagnose([dump.snapshot for dump in dumps]), "Training job: <dumps>")


def test_it_holds_the_findings_and_how_far_each_rank_came() -> None:
    """A rank that a finding names is marked, as is what is behind."""
    ranks = job()
    for rank in ranks[1:]:
        rank.launch("0", state="started").time_out()
    text = page(ranks)
    assert "rank 0: never launched it" in text
    assert '<th class="named">0</th><td class="behind">5 / 5</td>' in text
    assert "<th>1</th><td>6 / 5</td>" in text


def test_a_rank_without_a_dump_is_a_row() -> None:
    """It says so."""
    assert '<th>3</th><td class="none">no dump</td>' in page(job()[:3])


def test_what_a_dump_holds_is_text() -> None:
    """Names of groups, operations and frames, and the title."""
    ranks = [Rank(r, {"<img src=x>": [0, 1]}) for r in range(2)]
    ranks[0].launch("<img src=x>", "<script>", state="started").time_out()
    ranks[0].entries[0]["frames"][0]["name"] = "<b>"
    text = page(ranks)
    for harmful in ("<img", "<script", "<b>", "<dumps"):
        assert harmful not in text
    assert "default-src 'none'" in text


def test_a_large_job_shows_the_ranks_that_matter() -> None:
    """And says how many it leaves out."""
    size = MAX_ROWS + 8
    ranks = [Rank(r, {"0": list(range(size))}) for r in range(size)]
    for rank in ranks[:-1]:
        rank.launch("0", state="started").time_out()
    text = page(ranks)
    assert f'<th class="named">{size - 1}</th>' in text
    assert "Not shown: 8 ranks, 0 groups." in text
