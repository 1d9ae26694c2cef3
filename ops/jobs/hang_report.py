"""What the dumps of a job say, as text for people and as a document for machines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from localizer.collectives.ages import Age
from localizer.collectives.diagnosis import Diagnosis, Finding, HangClass
from localizer.collectives.ranges import rank_text
from localizer.collectives.slow_ranks import STRETCHES
from ops.log.timespan import iso_ms

TITLES: Final = {
    HangClass.NEVER_LAUNCHED: "never launched it",
    HangClass.DESYNCHRONISED: "ranks do different things",
    HangClass.NOT_FINISHED: "all launched it, it does not finish",
    HangClass.MISSING_DUMP: "no dump that can be used",
    HangClass.USUAL_WAIT: "waits no longer than it did before",
}
_RANK: Final = re.compile(r"rank (\d+)")


def as_text(found: Diagnosis) -> Iterator[str]:
    """Return lines for people."""
    dumps = len(found.ranks) - len(found.without_dump)
    yield (
        f"{_count(dumps, 'dump')} of {_count(len(found.ranks), 'rank')}, "
        f"{_count(len(found.groups), 'group')}"
    )
    if not found.recorded:
        yield "nothing can be said: no dump that can be used holds an operation"
    elif not found.findings:
        yield "nothing hangs: no rank waits for an operation of these dumps"
    for number, finding in enumerate(found.findings, 1):
        yield ""
        yield from _finding(number, finding)
    if found.slow_rank is not None:
        slow = found.slow_rank
        yield ""
        yield f"rank {slow.rank}: the others wait for it again and again (likely)"
        yield (
            f"   because   between its operations it works longer than others by {slow.share:.0%} "
            f"of the time, and by far longest in {slow.stretches} of {STRETCHES} stretches"
        )
        yield "   next      what does it do there? py-spy record --pid PID; its GPU's clock, heat"
    for note in found.notes:
        yield f"note: {note}"


def _count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> _count(1, "dump"), _count(2, "dump")
    ('1 dump', '2 dumps')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _may_be(candidates: Sequence[str]) -> str:
    """Return candidates as text, ranks in stretches.

    >>> _may_be(["rank 0", "rank 1", "rank 2"])
    'one of ranks 0–2'
    """
    ranks = [_RANK.fullmatch(candidate) for candidate in candidates]
    known = [int(rank[1]) for rank in ranks if rank is not None]
    if len(known) == len(candidates):
        return f"one of {rank_text(sorted(known))}"
    return "; ".join(candidates)


def _finding(number: int, finding: Finding) -> Iterator[str]:
    who = f"{rank_text(finding.ranks)}: " if finding.ranks else ""
    yield f"{number}. {who}{TITLES[finding.hang_class]} ({finding.certainty.value})"
    yield f"   in        {finding.operation}, number {finding.sequence} of group {finding.group}"
    yield f"   waiting   {rank_text(finding.waiting)}"
    yield f"   since     {_since(finding.age)}"
    if finding.candidates:
        yield f"   may be    {_may_be(finding.candidates)}"
    for title, lines in (
        ("because", finding.evidence), ("but", finding.doubts), ("next", finding.next_steps),
    ):  # fmt: skip
        for place, line in enumerate(lines):
            yield f"   {title if not place else '':<9} {line}"
    for place, (stack, ranks) in enumerate(finding.stacks[:4]):
        yield f"   {'launched' if not place else '':<9} {rank_text(ranks)}: {stack}"


def _since(age: Age) -> str:
    if age.since is None:
        return "a time that is not recorded"
    text = f"{iso_ms(age.since // 1000)} by the clock of rank {age.rank}"
    if age.waited is not None:
        text += f", {_duration(age.waited)} before its file was written"
    if age.longest_before is not None:
        text += f"; before, at most {_duration(age.longest_before)} between two launches"
    if age.timed_out:
        text += "; PyTorch has given it up"
    return text


def _duration(us: int) -> str:
    """Return microseconds as text.

    >>> _duration(39_248), _duration(5_035_570)
    ('39 ms', '5.0 s')
    """
    return f"{us / 1e3:.0f} ms" if us < 1_000_000 else f"{us / 1e6:.1f} s"


def as_document(found: Diagnosis) -> dict[str, Any]:
    """Return what can be written as JSON."""
    return {
        # Null where nothing can be said.
        "hangs": found.hangs if found.recorded else None,
        "ranks": list(found.ranks),
        "without_dump": list(found.without_dump),
        "groups": [
            {
                "name": group.name,
                "description": group.description,
                "members": list(group.members),
                "possible_members": list(group.possible),
                "inferred": group.inferred,
                "launched": {str(rank): head for rank, head in group.launched.items()},
                "done": {str(rank): done for rank, done in group.done.items()},
            }
            for group in found.groups
        ],
        "slow_rank": None if found.slow_rank is None else asdict(found.slow_rank),
        "findings": [_finding_document(finding) for finding in found.findings],
        "notes": list(found.notes),
    }


def _finding_document(finding: Finding) -> dict[str, Any]:
    age = finding.age
    return {
        "class": finding.hang_class.value,
        "certainty": finding.certainty.value,
        "ranks": list(finding.ranks),
        "candidates": list(finding.candidates),
        "group": finding.group,
        "sequence": finding.sequence,
        "operation": finding.operation,
        "waiting": list(finding.waiting),
        "since_us": age.since,
        "since_by_rank": age.rank,
        "waited_us": age.waited,
        "longest_before_us": age.longest_before,
        "timed_out": age.timed_out,
        "evidence": list(finding.evidence),
        "doubts": list(finding.doubts),
        "next_steps": list(finding.next_steps),
        "stacks": [{"stack": stack, "ranks": list(ranks)} for stack, ranks in finding.stacks],
    }
