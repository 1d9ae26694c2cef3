"""Holds the published verdicts of a run against the faults that were put in. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS, us_to_ns

# The first lost probe leaves within a round of the cut, and clocks are of one machine. A process
# that was killed meanwhile may have cost the first rounds.
BEFORE_NS: Final = SECOND_NS
AFTER_NS: Final = 6 * SECOND_NS
# An agent that does not run for so long is dead: its heartbeats, one a second, are missed.
DEAD_NS: Final = 3_500 * MS_NS
# A verdict on a dead agent may come so long after its return.
RETURNED_NS: Final = 5 * SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that was put in, and when it was put in and healed."""

    component_ids: tuple[str, ...]
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """An agent that was killed, and when it sent its first heartbeat again."""

    agent_id: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A transition as it stands in the topic; `at_ns` is when the broker appended it."""

    event: FaultEvent
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What is wrong with the verdicts, as sentences, and how long each right one took.

    Attributes
    ----------
    missed : faults that no verdict names, or whose verdict was never resolved
    doubled : faults with more than one verdict, or one that was opened or resolved twice
    false : verdicts of nothing that was put in, and verdicts that opened on a wrong component
    dead : verdicts on agents that did not run for longer than their heartbeats may be missed
    open_s, resolve_s : from the cut to the verdict, from the heal to its end
    """

    missed: tuple[str, ...]
    doubled: tuple[str, ...]
    false: tuple[str, ...]
    dead: tuple[str, ...]
    open_s: tuple[float, ...]
    resolve_s: tuple[float, ...]


def score(
    injected: Sequence[Injected],
    published: Iterable[Published],
    absences: Sequence[Absence] = (),
) -> Score:
    """Match each fault with the verdicts that name it and whose onset is right.

    A killed agent is no fault that must be found, but while it does not run, a verdict that says
    so is right.
    """
    by_id: dict[str, list[Published]] = {}
    for transition in published:
        by_id.setdefault(transition.event.fault_id, []).append(transition)
    missed: list[str] = []
    doubled: list[str] = []
    open_s: list[float] = []
    resolve_s: list[float] = []
    # A fault that comes back at the same place is the same fault: its life is cut into episodes.
    episodes = [e for found in by_id.values() for e in _episodes(found)]
    matched: set[int] = set()
    for fault in injected:
        found = [n for n, e in enumerate(episodes) if n not in matched and _matches(e, fault)]
        matched.update(found)
        if not found:
            missed.append(f"{fault.component_ids[0]}: no verdict")
            continue
        if len(found) > 1:
            doubled.append(f"{fault.component_ids[0]}: {len(found)} verdicts")
        first = episodes[found[0]]
        open_s.append((first[0].at_ns - fault.begin_ns) / SECOND_NS)
        end = episodes[found[-1]][-1]
        if end.event.state is not FaultLifecycle.RESOLVED:
            missed.append(f"{fault.component_ids[0]}: never resolved")
        else:
            resolve_s.append((end.at_ns - fault.end_ns) / SECOND_NS)
    others = [e for n, e in enumerate(episodes) if n not in matched]
    dead = [_line(e) for e in others if any(_explains(absence, e) for absence in absences)]
    false = [line for line in map(_line, others) if line not in dead]
    return Score(
        missed=tuple(missed), doubled=tuple(doubled), false=tuple(false), dead=tuple(dead),
        open_s=tuple(open_s), resolve_s=tuple(resolve_s),
    )  # fmt: skip


def _episodes(transitions: list[Published]) -> list[list[Published]]:
    """Return the transitions of a fault, one list from each opening to its resolve."""
    found: list[list[Published]] = []
    over = True
    for transition in sorted(transitions, key=lambda t: t.event.seq):
        opened = transition.event.state is FaultLifecycle.OPEN
        if over or opened:
            found.append([])
        found[-1].append(transition)
        over = transition.event.state is FaultLifecycle.RESOLVED
    return found


def _matches(episode: list[Published], fault: Injected) -> bool:
    """Return whether an episode names a component of the fault throughout, from its onset on."""
    onset_ns = us_to_ns(episode[0].event.onset_at)
    return (
        all(not t.event.decided or t.event.component_id in fault.component_ids for t in episode)
        and episode[-1].event.component_id in fault.component_ids
        and fault.begin_ns - BEFORE_NS <= onset_ns <= fault.begin_ns + AFTER_NS
    )


def _explains(absence: Absence, episode: list[Published]) -> bool:
    """Return whether an episode says that an agent is dead while it is."""
    event = episode[0].event
    return (
        event.fault_kind == "agent_dead"
        and all(t.event.component_id == absence.agent_id for t in episode)
        and absence.end_ns - absence.begin_ns > DEAD_NS
        and absence.begin_ns <= us_to_ns(event.event_at) <= absence.end_ns + RETURNED_NS
    )


def _line(episode: list[Published]) -> str:
    """Return what a verdict said, for people."""
    first, last = episode[0].event, episode[-1].event
    names = " → ".join(dict.fromkeys(t.event.component_id for t in episode))
    lasted_s = (last.event_at - first.event_at) / 1e6
    onset_s = first.onset_at / 1e6 % 100_000
    return (
        f"{names} {first.fault_kind}, onset {onset_s:.1f} s, {last.state.value} after "
        f"{lasted_s:.1f} s, written {(episode[0].at_ns / 1e9) % 100_000:.1f} s"
    )
