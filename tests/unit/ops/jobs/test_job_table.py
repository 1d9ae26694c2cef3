"""Where ranks stand: text and document."""

from dataclasses import replace
from pathlib import Path

from localizer.collectives.hang_watch import HangWatch
from ops.jobs.job_table import as_document, as_text
from ops.view.job_ranks import JobNow
from schemas.units import MS_NS, SECOND_NS
from tests.collective_batches import CLUSTER, TASK, Job, arrivals, bare_batch, seconds


def hung(folder: Path) -> tuple[JobNow, int]:
    """Return a job whose rank 1 never launches, and the time (ms)."""
    log = arrivals(Job.load("stalled", folder))
    watch, now = HangWatch(CLUSTER), JobNow.of(TASK)
    for until_ns, records in seconds(log):
        for arrival in records:
            watch.feed(arrival.key, arrival.record, arrival.at_ns)
            now.apply(arrival.record, arrival.at_ns)
        for hang in watch.advance(until_ns):
            now.apply(hang, until_ns)
    return now, log[-1].at_ns // MS_NS


def test_the_text_marks_the_culprit_and_says_who_waits(tmp_path: Path) -> None:
    """A row for each rank, a column for each kind of communicator."""
    found, now_ms = hung(tmp_path)
    lines = list(as_text(found, now_ms))
    assert lines[0] == "job1: 4 of 4 ranks heard, 5 communicators"
    assert lines[1].endswith("NEVER_LAUNCHED (sure)")
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("rank")) :]
    assert [line.split()[0] for line in table] == ["rank", "0", "!1", "2", "3"]
    assert table[0].split() == ["rank", "process", "default_pg", "dp", "tp"]
    assert "waits" not in table[2]
    assert all("waits" in table[place] for place in (1, 3, 4))
    assert not any("no operations" in line for line in lines)


def test_the_document_has_all(tmp_path: Path) -> None:
    """Sequences, waits and the hang, for machines."""
    found, now_ms = hung(tmp_path)
    document = as_document(found, now_ms)
    assert document["hangs"]
    assert document["hang"]["ranks"] == [1]
    (tensor,) = (
        one for one in document["ranks"][0]["communicators"] if one["waits_in"] == "all_reduce"
    )
    assert tensor["launched"] == tensor["done"] + 1
    assert tensor["waited_us"] > 4_000_000


def test_a_job_that_nobody_heard_of_is_said_to_be_one() -> None:
    """Nothing in the topics is no job that is well."""
    lines = list(as_text(JobNow.of("job9"), 0))
    assert lines[1] == "no hang is known"
    assert "nothing was heard" in lines[2]


def test_of_a_job_that_records_nothing_that_is_said() -> None:
    """Why, and what is left; not of a job whose dumps are read."""
    found = JobNow.of(TASK)
    found.apply(bare_batch(TASK, 0), SECOND_NS)
    assert any("record no operations (no dump)" in line for line in as_text(found, 1_000))


def test_texts_from_records_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """Names and summaries are whoever's who writes to the topics."""
    found, now_ms = hung(tmp_path)
    assert found.hang is not None
    found.hang = replace(found.hang, summary="\x1b[2Jall is well", evidence=("a\nb\u202ec",))
    (name, known), *_ = found.job.communicators.items()
    found.job.communicators[name] = replace(known, description="\x1b]0;title\x07")
    text = "\n".join(as_text(found, now_ms))
    assert not any(c in text for c in ("\x1b", "\x07", "\u202e"))
    assert "\\u001b[2Jall is well" in text
    assert "a\\u000ab\\u202ec" in text
