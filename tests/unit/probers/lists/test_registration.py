"""Registering, and two agents with one id."""

from dataclasses import replace

import pytest

from probers.clock import Instant
from probers.lists.registration import (
    CONFIRM_NS,
    CONFLICT_SHOWN_NS,
    MAX_INCARNATION_AHEAD_NS,
    REASSERT_NS,
    Announcement,
    Registration,
    RegistrationState,
)
from schemas.records import Endpoint
from schemas.units import SECOND_NS
from tests.unit.probers.clocks import ManualClock
from tests.unit.probers.makers import endpoint


class Running:
    """An agent's registration and its clock, with the RNIC w0/r0 present."""

    def __init__(self, clock: ManualClock | None = None, *, read: bool = True) -> None:
        self.clock = clock or ManualClock()
        self.agent = Registration(agent_id="agent-a", cluster="c1", started=self.clock.now())
        self.agent.present(endpoint("w0/r0", agent_id="agent-a"))
        if read:
            self.agent.read_to_end()

    def due(self) -> list[Announcement]:
        """Return what is to be written now."""
        return self.agent.due(self.clock.now())

    def see(self, record: Endpoint) -> None:
        """Let the agent read a registration."""
        self.agent.seen(record, self.clock.now())

    def announced(self) -> Endpoint:
        """Return the one registration that is due."""
        (announcement,) = self.due()
        assert announcement.endpoint is not None
        return announcement.endpoint


def test_nothing_is_written_before_the_topic_has_been_read() -> None:
    """What stands there decides the incarnation."""
    running = Running(read=False)
    assert running.due() == []
    assert not running.agent.probing
    running.agent.read_to_end()
    assert running.announced().registered_at == running.clock.now().epoch_us


def test_it_is_registered_when_it_reads_its_own_registration() -> None:
    """And then it does not write it again."""
    running = Running()
    own = running.announced()
    assert not running.agent.registered
    assert running.due() == []
    running.see(own)
    assert running.agent.registered
    running.clock.advance(10 * CONFIRM_NS)
    assert running.due() == []


def test_a_registration_that_never_arrived_is_sent_again() -> None:
    """It may have been dropped while the broker was away."""
    running = Running()
    running.due()
    running.clock.advance(CONFIRM_NS - 1)
    assert running.due() == []
    running.clock.advance(1)
    assert len(running.due()) == 1


def test_a_restart_after_the_clock_was_set_back_still_counts_as_later() -> None:
    """The incarnation is larger than any seen under the own id before the start."""
    running = Running(read=False)
    start_ns = running.clock.realtime_ns
    running.see(endpoint("w0/r0", agent_id="agent-a", incarnation=start_ns + 3_600 * SECOND_NS))
    running.agent.read_to_end()
    assert running.agent.state is RegistrationState.REGISTERED
    assert running.announced().incarnation == start_ns + 3_600 * SECOND_NS + 1


def test_what_a_predecessor_left_behind_is_cleared_away() -> None:
    """An endpoint of our id that we no longer have gets a tombstone; others' do not."""
    running = Running(read=False)
    running.see(endpoint("w0/r0", agent_id="agent-a"))
    running.see(endpoint("w0/r7", agent_id="agent-a"))
    running.see(endpoint("w0/r8", agent_id="agent-a"))
    running.see(endpoint("w5/r0", agent_id="agent-b"))
    running.agent.left("w0/r8", running.clock.now())
    running.agent.read_to_end()
    written = {a.endpoint_id: a.endpoint is not None for a in running.due()}
    assert written == {"w0/r7": False, "w0/r0": True}


def test_leaving_is_a_tombstone_for_what_was_registered() -> None:
    """Only endpoints that were announced are withdrawn."""
    running = Running()
    assert running.agent.leave() == []
    running.due()
    assert running.agent.leave() == [Announcement("w0/r0", None)]


def test_an_rnic_that_is_gone_leaves_and_may_come_back() -> None:
    """Tombstone, then a registration anew, possibly elsewhere."""
    running = Running()
    running.see(running.announced())
    running.agent.absent("w0/r0")
    assert running.due() == [Announcement("w0/r0", None)]
    assert running.due() == []
    running.agent.present(endpoint("w0/r0", agent_id="agent-a", port=9))
    assert running.announced().port == 9


def test_the_older_of_two_agents_yields() -> None:
    """It stops probing, writes nothing any more, and says why."""
    running = Running()
    own = running.announced()
    running.see(own)
    running.see(replace(own, incarnation=own.incarnation + 1, port=9))
    assert running.agent.state is RegistrationState.YIELDED
    assert not running.agent.probing
    assert running.due() == []
    assert running.agent.leave() == []
    assert running.agent.conflicts == 1
    assert "yielded" in (running.agent.conflict(running.clock.now()) or "")


def test_the_newer_of_two_agents_puts_its_registration_back_but_not_at_once_again() -> None:
    """An older one that writes is overwritten, at most every few seconds."""
    running = Running()
    own = running.announced()
    running.see(own)
    old = replace(own, incarnation=own.incarnation - 1, port=9)
    written = 0
    for _ in range(100):
        running.see(old)
        written += len(running.due())
        running.clock.advance(REASSERT_NS // 10)
    assert 8 <= written <= 11
    assert running.agent.probing
    assert "another agent" in (running.agent.conflict(running.clock.now()) or "")
    running.clock.advance(CONFLICT_SHOWN_NS + SECOND_NS)
    assert running.agent.conflict(running.clock.now()) is None


def test_two_agents_never_fight() -> None:
    """Both read one log: in the end one has yielded and the log's last word is the other's."""
    clock = ManualClock()
    first = Running(clock)
    log: list[Endpoint] = [first.announced()]
    clock.advance(5 * SECOND_NS)
    second = Running(clock, read=False)
    for record in log:
        second.see(record)
    second.agent.read_to_end()
    read = [0, len(log)]
    for _ in range(600):
        for number, running in enumerate((first, second)):
            while read[number] < len(log):
                running.see(log[read[number]])
                read[number] += 1
            log.extend(a.endpoint for a in running.due() if a.endpoint is not None)
        clock.advance(SECOND_NS // 10)
    assert first.agent.state is RegistrationState.YIELDED
    assert second.agent.registered
    assert log[-1].incarnation == second.agent.incarnation
    assert len(log) <= 4


def test_one_that_yielded_takes_over_when_the_other_says_goodbye() -> None:
    """On the tombstone it registers again, with a larger incarnation than both had."""
    running = Running()
    own = running.announced()
    running.see(own)
    other = replace(own, incarnation=own.incarnation + 10)
    running.see(other)
    running.agent.left("w0/r0", running.clock.now())
    again = running.announced()
    assert again.incarnation == other.incarnation + 1
    assert running.agent.probing


def test_the_old_agents_goodbye_does_not_unregister_the_new_one() -> None:
    """A rolling restart: the tombstone of the old one comes after the new registration."""
    running = Running()
    running.see(running.announced())
    running.clock.advance(REASSERT_NS)
    running.agent.left("w0/r0", running.clock.now())
    assert len(running.due()) == 1


@pytest.mark.parametrize(
    "record",
    [
        endpoint("w9/r0", agent_id="agent-z", incarnation=2**62),
        endpoint("w0/r0", agent_id="agent-a", cluster="c2", incarnation=ManualClock().realtime_ns),
        endpoint("w0/r0", agent_id="agent-a", incarnation=2**62),
    ],
)
def test_strangers_other_clusters_and_absurd_incarnations_change_nothing(
    record: Endpoint,
) -> None:
    """Garbage cannot silence an agent."""
    running = Running()
    running.see(running.announced())
    running.see(record)
    assert running.agent.state is RegistrationState.REGISTERED
    assert running.agent.conflicts == 0


def test_an_endpoint_taken_by_another_agent_is_a_conflict_too() -> None:
    """One endpoint id in two agents: the same rule decides."""
    running = Running()
    own = running.announced()
    running.see(own)
    running.see(replace(own, agent_id="agent-b", incarnation=own.incarnation + 1))
    assert running.agent.state is RegistrationState.YIELDED


def test_time_is_taken_from_what_is_given() -> None:
    """Registration times follow the clock handed in, not the system's."""
    agent = Registration(agent_id="agent-a", cluster="c1", started=Instant(5, 1_000))
    agent.present(endpoint("w0/r0", agent_id="agent-a"))
    agent.read_to_end()
    (announcement,) = agent.due(Instant(6, 2_000_000))
    assert announcement.endpoint is not None
    assert announcement.endpoint.registered_at == 2_000
    assert announcement.endpoint.incarnation == 1_000


@pytest.mark.parametrize("ahead_ns", [23 * 3_600 * SECOND_NS, MAX_INCARNATION_AHEAD_NS + 1])
def test_a_twin_from_the_future_is_refused_told_and_answered(ahead_ns: int) -> None:
    """Nobody starts hours after his registration arrived: the agent goes on and registers again."""
    running = Running()
    own = running.announced()
    running.see(own)
    running.clock.advance(2 * REASSERT_NS)
    running.see(replace(own, port=9, incarnation=running.clock.realtime_ns + ahead_ns))
    assert running.agent.probing
    assert running.agent.refused == 1
    assert "1 registrations under this id refused" in (
        running.agent.conflict(running.clock.now()) or ""
    )
    assert running.announced() == replace(own, registered_at=running.clock.now().epoch_us)
    running.clock.advance(CONFLICT_SHOWN_NS + 1)
    assert running.agent.conflict(running.clock.now()) is None
    assert running.agent.incarnation == own.incarnation


def test_the_broker_says_what_the_future_is() -> None:
    """An agent whose own clock is two hours behind yields to a twin whose clock is right."""
    running = Running()
    own = running.announced()
    arrived_ns = running.clock.realtime_ns + 2 * 3_600 * SECOND_NS
    twin = replace(own, incarnation=arrived_ns - SECOND_NS)
    running.see(twin)
    assert running.agent.probing
    running.agent.seen(twin, running.clock.now(), arrived_ns=arrived_ns)
    assert running.agent.state is RegistrationState.YIELDED
    assert running.agent.displaced_by == twin.incarnation
    running.agent.left("w0/r0", running.clock.now())
    assert running.agent.probing
    assert running.agent.displaced_by is None


def test_an_incarnation_that_is_none_is_refused() -> None:
    """Neither 0 nor less, while reading as well: it must not count as the largest seen."""
    running = Running(read=False)
    for incarnation in (0, -(2**63), 2**62):
        running.see(endpoint("w0/r0", agent_id="agent-a", incarnation=incarnation))
    running.agent.read_to_end()
    assert running.agent.refused == 3
    assert running.agent.incarnation == running.clock.realtime_ns


def test_registrations_are_dated_by_the_brokers_clock() -> None:
    """With a clock 50 minutes ahead nobody would accept them, and nobody would probe the agent."""
    ahead_ns = 3_000 * SECOND_NS
    running = Running(read=False)
    running.agent.observe_clock(ahead_ns)
    running.agent.read_to_end()
    own = running.announced()
    true_ns = running.clock.realtime_ns - ahead_ns
    assert (own.incarnation, own.registered_at) == (true_ns, true_ns // 1000)
    running.see(own)
    running.agent.observe_clock(ahead_ns + SECOND_NS // 2)
    running.agent.observe_clock(0)
    assert running.agent.incarnation == true_ns


def test_a_registration_that_was_refused_is_dated_again_when_the_clock_is_known() -> None:
    """The first went out before any confirmation came."""
    ahead_ns = 3_000 * SECOND_NS
    running = Running()
    first = running.announced()
    running.clock.advance(REASSERT_NS)
    running.agent.unreadable("w0/r0", running.clock.now())
    running.agent.observe_clock(ahead_ns)
    again = running.announced()
    assert again.incarnation == first.incarnation - ahead_ns
    assert again.registered_at == (running.clock.realtime_ns - ahead_ns) // 1000


def test_a_clock_that_is_off_by_milliseconds_changes_nothing() -> None:
    """The round trip to the broker is as long."""
    running = Running(read=False)
    running.agent.observe_clock(SECOND_NS // 2)
    running.agent.read_to_end()
    assert running.agent.incarnation == running.clock.realtime_ns
