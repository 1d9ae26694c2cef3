"""Dead agents, and agents that only seemed so."""

from dataclasses import replace

from localizer.facts.liveness import Liveness
from schemas.enums import AgentState
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START, heartbeat

NOBODY: frozenset[str] = frozenset()


def mute(_agent: str) -> bool:
    """Say that nobody probes the agent."""
    return False


def registered(_agent: str) -> bool:
    """Say that the agent has an endpoint."""
    return True


def beating(agents: tuple[str, ...] = ("a", "b", "c"), beats: int = 5) -> Liveness:
    """Return agents that sent heartbeats at START, +1 s and so on."""
    liveness = Liveness()
    for seq in range(beats):
        for agent in agents:
            at = START + seq * SECOND_NS
            liveness.observe_heartbeat(heartbeat(agent, at, seq), at)
    return liveness


def go_on(liveness: Liveness, agents: tuple[str, ...], first: int, last: int) -> None:
    """Let some agents go on."""
    for seq in range(first, last + 1):
        for agent in agents:
            liveness.observe_heartbeat(
                heartbeat(agent, START + seq * SECOND_NS, seq), START + seq * SECOND_NS
            )


def test_silence_and_unanswered_probes_are_death() -> None:
    """With witnesses an agent is dead after 4.5 intervals, not before."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 9)
    last = START + 4 * SECOND_NS
    assert (
        liveness.declare_dead(last + 9 * SECOND_NS // 2, frozenset("c"), NOBODY, mute, registered)
        == []
    )
    assert liveness.declare_dead(
        last + 19 * SECOND_NS // 4, frozenset("c"), NOBODY, mute, registered
    ) == ["c"]
    assert liveness.dead == {"c": last + SECOND_NS}
    assert (
        liveness.declare_dead(last + 5 * SECOND_NS, frozenset("c"), NOBODY, mute, registered) == []
    )


def test_without_a_witness_silence_must_last() -> None:
    """Nobody probes it: a process that was held up gets more time."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 12)
    last = START + 4 * SECOND_NS
    assert liveness.declare_dead(last + 13 * SECOND_NS // 2, NOBODY, NOBODY, mute, registered) == []
    assert liveness.declare_dead(last + 27 * SECOND_NS // 4, NOBODY, NOBODY, mute, registered) == [
        "c"
    ]


def test_silence_of_all_is_no_death() -> None:
    """A pipeline that pauses has not killed every agent."""
    liveness = beating()
    assert (
        liveness.declare_dead(START + 60 * SECOND_NS, frozenset("abc"), NOBODY, mute, registered)
        == []
    )
    assert liveness.dead == {}


def test_an_agent_that_leaves_or_has_left_is_not_dead() -> None:
    """LEAVING, a deleted heartbeat, or no endpoint left: gone in order."""
    liveness = beating()
    go_on(liveness, ("a",), 5, 30)
    liveness.observe_heartbeat(
        heartbeat("b", START + 5 * SECOND_NS, 5, state=AgentState.LEAVING), START + 5 * SECOND_NS
    )
    assert (
        liveness.declare_dead(
            START + 30 * SECOND_NS, frozenset("bc"), frozenset("c"), mute, registered
        )
        == []
    )
    liveness.forget_agent("c")
    assert (
        liveness.declare_dead(START + 30 * SECOND_NS, frozenset("bc"), NOBODY, mute, registered)
        == []
    )


def test_a_dead_agent_that_speaks_lives() -> None:
    """The next heartbeat ends the death; what began meanwhile is excused for a while."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 30)
    liveness.declare_dead(START + 12 * SECOND_NS, NOBODY, NOBODY, mute, registered)
    assert liveness.excused("c", START + 6 * SECOND_NS, START + 12 * SECOND_NS)
    go_on(liveness, ("c",), 20, 20)
    assert liveness.dead == {}
    assert liveness.excused("c", START + 6 * SECOND_NS, START + 22 * SECOND_NS)
    assert not liveness.excused("c", START + 6 * SECOND_NS, START + 28 * SECOND_NS)
    assert not liveness.excused("c", START - 9 * SECOND_NS, START + 22 * SECOND_NS)


def test_a_restart_without_death_is_excused_too() -> None:
    """A new process within two seconds was away all the same."""
    liveness = beating()
    at = START + 5 * SECOND_NS
    liveness.observe_heartbeat(heartbeat("c", at, 0, incarnation=2), at)
    assert liveness.excused("c", START + 9 * SECOND_NS // 2, at + SECOND_NS)


def test_a_heartbeat_that_is_a_second_late_explains_nothing() -> None:
    """What takes probes takes heartbeats, too: they are sent again."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 12)
    at = START + 59 * SECOND_NS // 10
    liveness.observe_heartbeat(heartbeat("c", at, 5), at)
    assert not liveness.excused("c", at - SECOND_NS, at)
    late = at + 27 * SECOND_NS // 10
    liveness.observe_heartbeat(heartbeat("c", late, 6), late)
    assert liveness.excused("c", late - SECOND_NS, late)


def test_an_agent_that_answers_is_unheard_and_not_dead() -> None:
    """Until it is heard, or probes of its endpoints fail."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 30)
    now, last = START + 18 * SECOND_NS, START + 4 * SECOND_NS

    def answers(_: str) -> bool:
        return True

    assert liveness.declare_dead(last + 12 * SECOND_NS, NOBODY, NOBODY, answers, registered) == []
    assert liveness.silent == {}
    assert liveness.declare_dead(now, NOBODY, NOBODY, answers, registered) == []
    assert (liveness.dead, liveness.silent) == ({}, {"c": last + SECOND_NS})
    assert liveness.declare_dead(now, frozenset("c"), NOBODY, mute, registered) == ["c"]
    assert (liveness.unheard, liveness.silent) == ({}, {"c": last + SECOND_NS})
    assert liveness.declare_dead(now, NOBODY, frozenset("c"), mute, registered) == []
    assert liveness.silent == {}


def test_a_heartbeat_from_after_the_onset_shows_life() -> None:
    """One from before it shows nothing; an agent that never sent one is not waited for."""
    liveness = beating()
    assert liveness.alive_after("a", START + 3 * SECOND_NS)
    assert not liveness.alive_after("a", START + 4 * SECOND_NS)
    assert liveness.alive_after("unknown", START)


def test_an_agent_that_is_late_does_not_vouch_for_its_paths() -> None:
    """Its silence about a 5-tuple is no good path."""
    liveness, asked = beating(), ({"a": 1}, {"unknown": 2})
    assert liveness.uninformative(asked, START + 5 * SECOND_NS) == {"unknown"}
    go_on(liveness, ("b", "c"), 5, 6)
    assert liveness.uninformative(asked, START + 6 * SECOND_NS) == {"a", "unknown"}


def test_while_the_log_pauses_nobody_is_late() -> None:
    """The silence of all says nothing about one agent's paths."""
    liveness, asked = beating(), ({"a": 1}, {"unknown": 2})
    assert liveness.uninformative(asked, START + 60 * SECOND_NS) == {"unknown"}


def test_after_an_outage_silence_counts_from_its_end() -> None:
    """The broker was away for 20 s; agents are heard again one after another, c never.

    They have 8 s to find it, then c has 6.5 intervals.
    """
    liveness = beating()
    for second in range(5, 24):
        assert (
            liveness.declare_dead(START + second * SECOND_NS, NOBODY, NOBODY, mute, registered)
            == []
        )
    go_on(liveness, ("a",), 24, 26)
    assert liveness.declare_dead(START + 26 * SECOND_NS, NOBODY, NOBODY, mute, registered) == []
    go_on(liveness, ("a", "b"), 27, 38)
    assert liveness.declare_dead(START + 38 * SECOND_NS, NOBODY, NOBODY, mute, registered) == []
    go_on(liveness, ("a", "b"), 39, 39)
    assert liveness.declare_dead(START + 39 * SECOND_NS, NOBODY, NOBODY, mute, registered) == ["c"]


def test_an_agent_that_answers_probes_lives() -> None:
    """Only its heartbeats are missing; when most probes fail too, it is dead."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 40)
    now = START + 40 * SECOND_NS
    assert liveness.declare_dead(now, NOBODY, NOBODY, lambda agent: agent == "c", registered) == []
    assert (
        liveness.declare_dead(now, frozenset("c"), NOBODY, lambda agent: agent == "c", registered)
        == []
    )
    assert liveness.declare_dead(now, frozenset("c"), NOBODY, mute, registered) == ["c"]


def test_a_clock_that_is_behind_is_not_death() -> None:
    """Heartbeats whose own time is a minute old, or whose arrival was, come all the same."""
    liveness = beating()
    for seq in range(5, 20):
        now = START + seq * SECOND_NS
        go_on(liveness, ("a", "b"), seq, seq)
        liveness.observe_heartbeat(heartbeat("c", now - 60 * SECOND_NS, seq), now)
        liveness.observe_heartbeat(heartbeat("d", now, seq), now - 60 * SECOND_NS, now_ns=now)
        assert liveness.declare_dead(now, frozenset("cd"), NOBODY, mute, registered) == []


def test_an_old_heartbeat_read_again_changes_nothing() -> None:
    """A duplicate does not bring the dead back."""
    liveness = beating()
    go_on(liveness, ("a", "b"), 5, 12)
    liveness.declare_dead(START + 12 * SECOND_NS, NOBODY, NOBODY, mute, registered)
    liveness.observe_heartbeat(heartbeat("c", START + 4 * SECOND_NS, 4), START + 12 * SECOND_NS)
    assert "c" in liveness.dead


def test_a_death_is_remembered_over_a_restart_of_ours() -> None:
    """Taken over from a former process, it lasts until a newer heartbeat."""
    liveness = Liveness()
    liveness.remember_silent("c", START, dead=True)
    assert liveness.excused("c", START, START + SECOND_NS)
    liveness.observe_heartbeat(heartbeat("c", START + 9 * SECOND_NS, 3), START + 9 * SECOND_NS)
    assert liveness.dead == {}


def test_a_death_of_which_one_was_told_says_nothing_of_intervals() -> None:
    """Its interval is not known; else a log whose agents report seldom would seem to pause."""
    liveness = Liveness()
    liveness.remember_silent("c", START, dead=True)
    beat = heartbeat("a", START, 3, interval_ns=5 * SECOND_NS)
    liveness.observe_heartbeat(beat, START)
    liveness.observe_heartbeat(replace(beat, agent_id="b"), START)
    assert liveness.agents.usual_interval_ns == 5 * SECOND_NS


def test_an_excuse_lasts_while_nobody_can_clear_it() -> None:
    """The target is back, but the prober whose answered rounds would show it is away itself."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("b",), 5, 40)
    onset = START + 9 * SECOND_NS // 2
    go_on(liveness, ("c",), 8, 40)
    go_on(liveness, ("a",), 15, 20)
    back, soon = START + 8 * SECOND_NS, START + 17 * SECOND_NS
    assert not liveness.excused("c", onset, soon, prober="b")
    assert liveness.excused("c", onset, soon, prober="a")
    # Silent again before three rounds were answered.
    assert liveness.excused("c", onset, START + 26 * SECOND_NS, prober="a")
    go_on(liveness, ("a",), 30, 40)
    assert liveness.excused("c", onset, START + 37 * SECOND_NS, prober="a")
    assert not liveness.excused("c", onset, START + 39 * SECOND_NS, prober="a")
    assert liveness.excused("c", onset, back + SECOND_NS, prober="stranger")


def test_an_excuse_lasts_while_the_log_pauses() -> None:
    """The target is back; that rounds were answered again stands behind the broker's pause."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b"), 5, 12)
    # The target was away from second 4 to 8, and the log pauses from 12 to 30.
    go_on(liveness, ("c",), 8, 12)
    onset = START + 9 * SECOND_NS // 2
    assert liveness.excused("c", onset, START + 15 * SECOND_NS, prober="a")
    assert liveness.excused("c", onset, START + 29 * SECOND_NS, prober="a")
    # After it agents find the broker again, and three rounds are answered.
    go_on(liveness, ("a", "b", "c"), 30, 50)
    assert liveness.excused("c", onset, START + 45 * SECOND_NS, prober="a")
    assert not liveness.excused("c", onset, START + 47 * SECOND_NS, prober="a")


def test_a_pause_after_an_excuse_excuses_nothing() -> None:
    """What was not cleared while the log went on is the network's."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b"), 5, 20)
    go_on(liveness, ("c",), 8, 20)
    onset = START + 9 * SECOND_NS // 2
    assert not liveness.excused("c", onset, START + 17 * SECOND_NS, prober="a")
    assert not liveness.excused("c", onset, START + 24 * SECOND_NS, prober="a")
    go_on(liveness, ("a", "b", "c"), 30, 35)
    assert not liveness.excused("c", onset, START + 35 * SECOND_NS, prober="a")


def test_a_silence_that_a_pause_hid_began_in_it() -> None:
    """An agent was away from second 8 to 14; its last heartbeat arrived at 12, behind the pause."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b"), 12, 20)
    at = START + 12 * SECOND_NS
    liveness.observe_heartbeat(heartbeat("c", at, 8), at)
    back = START + 15 * SECOND_NS
    liveness.observe_heartbeat(heartbeat("c", back, 0, incarnation=2), back)
    onset = START + 9 * SECOND_NS
    assert liveness.excused("c", onset, START + 16 * SECOND_NS, prober="a")
    # Before the pause all was heard.
    assert not liveness.excused("c", START + SECOND_NS, START + 16 * SECOND_NS, prober="a")


def test_an_excuse_lasts_over_two_pauses() -> None:
    """Three rounds were answered after neither: what the first put off the second does again."""
    liveness = beating(("a", "b", "c"))
    # The target was away from second 4 to 8; the log pauses from 12 to 20, and from 24 to 32.
    go_on(liveness, ("a", "b"), 5, 12)
    go_on(liveness, ("c",), 8, 12)
    go_on(liveness, ("a", "b", "c"), 20, 24)
    go_on(liveness, ("a", "b", "c"), 32, 50)
    onset = START + 9 * SECOND_NS // 2
    assert liveness.excused("c", onset, START + 47 * SECOND_NS, prober="a")
    assert not liveness.excused("c", onset, START + 49 * SECOND_NS, prober="a")


def test_a_silence_after_ordinary_heartbeats_did_not_begin_in_the_pause() -> None:
    """All were heard each second since it; what fails from the pause on is the network's."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b", "c"), 12, 17)
    go_on(liveness, ("a", "b"), 18, 40)
    go_on(liveness, ("c",), 28, 40)
    now = START + 29 * SECOND_NS
    assert liveness.excused("c", START + 18 * SECOND_NS, now, prober="a")
    assert not liveness.excused("c", START + 9 * SECOND_NS, now, prober="a")


def test_heartbeats_of_a_pause_arrive_together_and_are_not_ordinary() -> None:
    """An agent sent the last of three at second 7, and was away until 15."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b"), 12, 20)
    for seq in (5, 6, 7):
        at = START + 12 * SECOND_NS + seq * SECOND_NS // 100
        liveness.observe_heartbeat(heartbeat("c", at, seq), at)
    back = START + 15 * SECOND_NS
    liveness.observe_heartbeat(heartbeat("c", back, 0, incarnation=2), back)
    assert liveness.excused("c", START + 8 * SECOND_NS, START + 16 * SECOND_NS, prober="a")


def test_batches_of_a_pause_a_second_apart_are_not_ordinary() -> None:
    """An agent said at second 11 that it leaves, and was back at 15; all came from 12.5 on."""
    liveness = beating(("a", "b", "c"))
    go_on(liveness, ("a", "b"), 12, 20)
    late = START + 25 * SECOND_NS // 2
    liveness.observe_heartbeat(heartbeat("c", late, 5), late)
    late += 11 * SECOND_NS // 10
    for seq in range(6, 12):
        liveness.observe_heartbeat(heartbeat("c", late, seq), late)
    leaving = heartbeat("c", late, 12, state=AgentState.LEAVING)
    liveness.observe_heartbeat(leaving, late)
    back = START + 15 * SECOND_NS
    liveness.observe_heartbeat(heartbeat("c", back, 0, incarnation=2), back)
    assert liveness.excused("c", START + 12 * SECOND_NS, START + 16 * SECOND_NS, prober="a")
    # Its heartbeats of these seconds came.
    assert not liveness.excused("c", START + 8 * SECOND_NS, START + 16 * SECOND_NS, prober="a")
