"""A core that starts again in the middle goes on as if it had not been away."""

import random
from dataclasses import replace
from functools import cache

import pytest

from localizer import core as core_module
from localizer.config import CoreConfig
from localizer.core import Core
from localizer.inference.explainer import Explainer
from localizer.inference.search import Explanation, Problem
from localizer.verdict import lifecycle
from schemas.records import FaultEvent
from schemas.units import MS_NS, SECOND_NS, us_to_ns
from tests.unit.localizer.batched import feed_polls
from tests.unit.localizer.simlab import CLUSTER, Record, SimLab, events

LINK = "link:leaf:p0-0--spine:0"
LOOKBACK = 60 * SECOND_NS
CONFIG = CoreConfig(cluster=CLUSTER)
# Read from the beginning at a restart, as the service does.
STATE = ("endpoint.v1", "task.v1", "pinglist.v1", "topology.v1", "overlay.flows.v1")


@cache
def incident() -> SimLab:
    """Return a lab in which a link is cut and healed, flaps back, and an agent dies."""
    lab = SimLab(seed=5, flows=2)
    lab.run(6)
    for _ in range(2):
        lab.effects.links[LINK] = (1.0, 0)
        lab.run(6)
        lab.effects.links.clear()
        lab.run(14)
    lab.effects.dead.add("agent-h2")
    lab.run(8)
    lab.effects.dead.clear()
    lab.run(10)
    return lab


@cache
def uninterrupted() -> list[FaultEvent]:
    """Return the transitions of one core that runs over the whole log."""
    return incident().verdicts()


def replayed(log: list[Record], core: Core, until: int) -> tuple[list[FaultEvent], int | None]:
    """Feed records up to a place in the log; return transitions, and the time decided up to."""
    decided = None
    for event, watermark in events(log[:until]):
        decided = watermark
        if event is not None:
            core.feed(event)
    return ([] if decided is None else core.advance(decided)), decided


def restarted(log: list[Record], published: list[FaultEvent], decided: int) -> Core:
    """Return a core that knows what was published, and has read the look-back's log."""
    core = Core(CONFIG, published, begin_ns=decided - LOOKBACK, decided_ns=decided)
    recent = (decided - LOOKBACK) // 10**6
    kept = [r for r in log if r.topic in STATE or r.timestamp_ms >= recent]
    feed_polls(core, [event for event, _ in events(kept) if event is not None])
    return core


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_neither_repeats_nor_loses(seed: int) -> None:
    """Killed at a random place, the transitions before and after are those of one core."""
    lab = incident()
    expected = uninterrupted()
    place = random.Random(seed).randrange(len(lab.log) // 4, len(lab.log))
    before, decided = replayed(lab.log, Core(CONFIG), place)
    assert decided is not None
    core = restarted(lab.log, before, decided)
    after = core.advance(lab.now)
    said = [(e.fault_id, e.seq, e.state, e.component_id) for e in (*before, *after)]
    assert said == [(e.fault_id, e.seq, e.state, e.component_id) for e in expected]


@pytest.mark.parametrize("share", [0.35, 0.8])
def test_one_that_follows_takes_over_at_any_moment(share: float) -> None:
    """A standby is told each second what was decided and published; then it decides by itself."""
    lab = incident()
    leader, standby = Core(CONFIG), Core(CONFIG)
    found = [event for event, _ in events(lab.log) if event is not None]
    for event in found:
        leader.feed(event)
    feed_polls(standby, found)
    begin_ns = lab.log[0].timestamp_ms * MS_NS
    handover_ns = begin_ns + round(share * (lab.now - begin_ns))
    said: list[FaultEvent] = []
    for decided_ns in range(begin_ns, handover_ns, SECOND_NS):
        new = leader.advance(decided_ns)
        standby.follow(new, decided_ns)
        assert standby.advance(decided_ns) == []
        said += new
    # What it published last, after it said how far it was.
    last = leader.advance(handover_ns)
    standby.follow(last, decided_ns)
    assert [*said, *last, *standby.advance(lab.now)] == uninterrupted()


def test_a_restart_whose_position_is_old_repeats_nothing() -> None:
    """Transitions after the remembered position were published: they are not said again."""
    lab = incident()
    expected = uninterrupted()
    position = us_to_ns(expected[0].event_at) - SECOND_NS
    core = restarted(lab.log, expected, position)
    assert core.advance(lab.now) == []


def test_history_from_long_ago_costs_nothing() -> None:
    """Old faults are taken over at the look-back's begin, not lived through again."""
    lab = incident()
    expected = uninterrupted()
    core = restarted(lab.log, expected, lab.now - SECOND_NS)
    core.advance(lab.now)
    assert core.steps <= LOOKBACK // (250 * 10**6) + 4


def test_an_open_fault_of_a_dead_agent_survives_without_heartbeats() -> None:
    """The look-back holds nothing of the agent; its fault stays open, and ends when it is back."""
    lab = incident()
    expected = uninterrupted()
    dead = next(e for e in expected if e.fault_kind == "agent_dead")
    decided = us_to_ns(dead.event_at) + SECOND_NS
    log = [r for r in lab.log if r.key != "agent-h2" or r.timestamp_ms * 10**6 > decided]
    published = [e for e in expected if e.event_at <= dead.event_at]
    core = Core(CONFIG, published, begin_ns=decided - SECOND_NS, decided_ns=decided)
    for event, _ in events(log):
        if event is not None:
            core.feed(event)
    after = core.advance(lab.now)
    assert [(e.fault_id, e.seq) for e in after] == [(dead.fault_id, dead.seq + 1)]


OTHER = "link:leaf:p1-0--spine:1"
# As if little were remembered: nothing from before half of the lab's time.
REMEMBER = 10 * SECOND_NS
FORGETFUL = replace(CONFIG, flap_ns=REMEMBER)


@cache
def history() -> SimLab:
    """Return a lab in which a link was cut, another one still is, and the first is cut again."""
    lab = SimLab(seed=7, flows=2)
    lab.run(5)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(5)
    del lab.effects.links[LINK]
    lab.run(9)
    lab.effects.links[OTHER] = (1.0, 0)
    lab.run(26)
    lab.effects.links.clear()
    lab.run(8)
    return lab


def test_what_is_long_over_is_not_inferred_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart goes on as if it had not been away, and infers little of the distant past anew."""
    lab = history()
    count = 0

    def counted(kept: Explainer, problem: Problem) -> Explanation:
        nonlocal count
        count += 1
        return explained(kept, problem)

    explained = Explainer.explain
    monkeypatch.setattr(Explainer, "explain", counted)
    for module in (core_module, lifecycle):
        monkeypatch.setattr(module, "REMEMBER_NS", REMEMBER)
    expected = lab.verdicts(FORGETFUL)
    whole, count = count, 0
    place = len(lab.log) - len(lab.log) // 8
    before, decided = replayed(lab.log, Core(FORGETFUL), place)
    assert decided is not None
    count = 0
    again = Core(FORGETFUL, before, begin_ns=decided - LOOKBACK, decided_ns=decided)
    for event, _ in events(lab.log):
        if event is not None:
            again.feed(event)
    after = again.advance(lab.now)
    assert [(e.fault_id, e.seq) for e in (*before, *after)] == [
        (e.fault_id, e.seq) for e in expected
    ]
    assert before
    assert after
    assert count < 0.9 * whole
