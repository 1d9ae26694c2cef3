"""A real job of JAX hangs, which records no operations: what is told of it, and what is not.

As the part `live`, with the causes that such a job can have. What nobody can tell without a
recorder is to be said of nobody: a rank that launches nothing as undecided, a slow one not at all.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from ops.bench.collectives.causes import CAUSES, Cause, Outcome, Said
from ops.bench.collectives.listeners import text
from ops.bench.collectives.needed import lacks_job
from ops.bench.rig.report import Figure, Say, figure
from ops.lab.frameworks import JAX
from schemas.ids import rank_key

# Undecided: all ranks are candidates, and the first of them stands for all.
STUCK: Final = "collective_stuck"
OF_NOBODY: Final = ", of nobody"
STRETCH_S: Final = 60.0
# Stillness counts once bytes have moved for a minute in this attempt.
TRAINED_S: Final = 90.0
# That all stand still, or that a rank has ended, is told after a minute.
TIMEOUT_S: Final = 90.0
# What ends rank 0 ends the job: JAX's coordinator lives there, and the others end themselves.
FIRST: Final = 0


class Bench(Protocol):
    """Puts causes in a lab, one after another, and hears what is said."""

    def run(self, cause: Cause, number: int, turn: int, timeout_s: float) -> Outcome:
        """Put a cause in, hear, heal, and wait until the job trains again."""

    def anew(self) -> None:
        """Restart the job."""

    def healthy(self, seconds: float) -> int:
        """Let the job train; return how many faults were told."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is to be said of a cause: under which names, and whether of its place or of nobody.

    No names: nothing is to be said.
    """

    names: tuple[str, ...]
    named: bool = True

    def __str__(self) -> str:
        """Return it for the table."""
        if not self.names:
            return "nothing"
        return " or ".join(self.names) + ("" if self.named else OF_NOBODY)

    def is_met(self, outcome: Outcome) -> bool:
        """Return whether this was said, and nothing else."""
        if not self.names or len(outcome.said) != 1:
            return not self.names and not outcome.said
        return outcome.said[0].name in self.names and (outcome.place_right or not self.named)


def expected_of(cause: Cause, rank: int) -> Expected:
    """Return what is to be said of a cause that is put in at a rank."""
    if cause.kind == "rank-stall":
        return Expected((STUCK,), named=False)
    if cause.kind == "rank-slow" or (cause.kind == "rank-exit" and rank == FIRST):
        return Expected(())
    return Expected(cause.kinds)


def blames(said: Sequence[Said], outcome: Outcome) -> bool:
    """Return whether somebody else than the cause's place is named."""
    return any(one.name != STUCK for one in said) and not outcome.place_right


def measure(
    bench: Callable[[Say, Path | None], AbstractContextManager[Bench]],
    runs: int,
    say: Say,
    *,
    causes: Sequence[str] = (),
    keep: Path | None = None,
) -> list[Figure]:
    """Put each cause in so many times, or some; print a table as it goes."""
    if lacks_job(say, JAX):
        return []
    chosen = [
        (number, cause)
        for number, cause in enumerate(CAUSES)
        if cause.kind not in JAX.refused and (not causes or cause.name in causes)
    ]
    outcomes: list[tuple[Outcome, bool]] = []
    false: list[int] = []
    with bench(say, keep) as rig:
        for turn in range(runs):
            false.append(rig.healthy(STRETCH_S))
            say(row("none", "", "nothing", f"{false[-1]} faults", None, right=not false[-1]))
            for number, cause in chosen:
                rig.anew()
                false.append(rig.healthy(TRAINED_S))
                outcome = rig.run(cause, number, turn, TIMEOUT_S)
                rank = rank_key(outcome.target)[1]
                wanted = expected_of(cause, rank)
                met = wanted.is_met(outcome)
                outcomes.append((outcome, met))
                said = ", ".join(map(sentence, outcome.said)) or "nothing"
                where = f"`{outcome.target}`" if rank < 0 else f"rank {rank}"
                say(row(cause.name, where, str(wanted), said, outcome.delay_s, right=met))
    return figures(outcomes, false)


def sentence(said: Said) -> str:
    """Return what was said of whom, for the table."""
    if said.name == STUCK:
        return f"{said.name}{OF_NOBODY}"
    return text((said,)).replace("|", " rank ")


def row(
    cause: str, target: str, wanted: str, said: str, delay_s: float | None, *, right: bool
) -> str:
    """Return a row of the table that is printed."""
    after = "" if delay_s is None else f"{delay_s:.1f} s"
    cells = cause, target, wanted, said, after, "yes" if right else "**no**"
    return f"| {' | '.join(cells)} |"


def figures(outcomes: Sequence[tuple[Outcome, bool]], false: Sequence[int]) -> list[Figure]:
    """Return the figures of some causes and healthy stretches."""
    met = [float(right) for _, right in outcomes]
    blamed = sum(blames(outcome.said, outcome) for outcome, _ in outcomes)
    share = figure("JAX, unrecorded: said as can be known", met, "of causes")
    return [
        replace(share, value=sum(met) / len(met) if met else None),
        replace(
            figure("JAX, unrecorded: something innocent named", met, "causes", 0),
            value=float(blamed), low=None, high=None,
        ),
        replace(
            figure("JAX, unrecorded: said of healthy stretches", [float(n) for n in false], "", 0),
            value=float(sum(false)),
        ),
    ]  # fmt: skip
