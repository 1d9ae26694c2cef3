"""Who probes whom, and who has left."""

from dataclasses import replace

from localizer.facts.roster import Roster
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.localizer.made import START, endpoint, pinglist, task


def roster() -> Roster:
    """Return two registered endpoints of a job, probed both ways."""
    found = Roster()
    found.set_task("t", task("t", [("e0", "a0"), ("e1", "a1")]))
    found.set_endpoint("e0", endpoint("e0", "a0", "t"))
    found.set_endpoint("e1", endpoint("e1", "a1", "t"))
    found.set_pinglist("a0", pinglist("a0", [("e0", "e1")], flows=2))
    found.set_pinglist("a1", pinglist("a1", [("e1", "e0"), ("e1", "e9")]))
    return found


def test_probed_is_what_is_listed_and_registered() -> None:
    """Both ends must have registered: `e9` has not."""
    assert list(roster().probed()) == [
        ("a0", ("e0", "e1", 0)),
        ("a0", ("e0", "e1", 1)),
        ("a1", ("e1", "e0", 0)),
    ]


def test_a_tombstone_is_a_leave_until_it_registers_again() -> None:
    """It is no longer probed and its anomalies are nobody's, until it is back."""
    found = roster()
    found.set_endpoint("e1", None)
    assert found.has_left("e1")
    assert list(found.probed()) == []
    flows = [("e0", "e1", 0), ("e0", "e2", 0), ("e1", "e2", 0)]
    assert found.of_departed(flows) == [flows[0], flows[2]]
    found.set_endpoint("e1", endpoint("e1", "a1"))
    assert not found.has_left("e1")
    assert found.of_departed(flows) == []


def test_the_end_of_a_job_is_a_leave_of_its_endpoints() -> None:
    """Unless another job still runs on them."""
    found = roster()
    found.set_task("u", task("u", [("e1", "a1")]))
    found.set_task("t", task("t", [("e0", "a0"), ("e1", "a1")], ended=5))
    assert found.has_left("e0")
    assert not found.has_left("e1")
    found.set_task("u", None)
    assert found.has_left("e1")


def test_an_agent_without_endpoints_is_deserted() -> None:
    """All its endpoints left, by tombstone or with their job."""
    found = roster()
    found.set_endpoint("e0", None)
    assert found.deserted_agents() == {"a0"}
    found.set_task("t", None)
    assert found.deserted_agents() == {"a0", "a1"}


def test_an_older_ping_list_does_not_replace_a_newer() -> None:
    """Versions only grow; None withdraws the list."""
    found = roster()
    found.set_pinglist("a0", pinglist("a0", [("e0", "e1")], version=5))
    found.set_pinglist("a0", pinglist("a0", [], version=4))
    assert ("a0", ("e0", "e1", 0)) in list(found.probed())
    found.set_pinglist("a0", None)
    assert all(agent != "a0" for agent, _ in found.probed())


def test_agents_are_known_before_they_register() -> None:
    """A job names the agent of an endpoint that has not come up; a registration wins."""
    found = Roster()
    found.set_task("t", task("t", [("e0", "planned")]))
    assert found.agent_of("e0") == "planned"
    found.set_endpoint("e0", endpoint("e0", "real", "t"))
    assert found.agent_of("e0") == "real"
    assert found.tasks_of("e0") == {"t"}
    assert found.tasks_of_agent("real") == {"t"}
    assert found.agent_of("nobody") is None


def test_it_is_known_for_a_minute_which_pairs_are_new_on_a_list() -> None:
    """Of a list that came back all are; of one with a further target this one alone."""
    found = Roster()

    def set_at(second: int, *pairs: tuple[str, str], updated_s: int | None = None) -> None:
        found.now_ns = START + second * SECOND_NS
        at_s = second if updated_s is None else updated_s
        listed = pinglist("a", list(pairs), version=second)
        found.set_pinglist(
            "a", replace(listed, updated_at=ns_to_us(START + at_s * SECOND_NS)) if pairs else None
        )

    def since_s(target: str) -> int | None:
        since_ns = found.new_ns("a", ("e", target, 3))
        return (since_ns - START) // SECOND_NS if since_ns else None

    set_at(0, ("e", "b"))
    assert (since_s("b"), since_s("c")) == (0, None)
    set_at(20, ("e", "b"), ("e", "c"))
    assert (since_s("b"), since_s("c")) == (0, 20)
    set_at(70, ("e", "b"), ("e", "c"))
    assert (since_s("b"), since_s("c")) == (None, 20)
    set_at(100)
    assert since_s("c") is None
    set_at(110, ("e", "b"), ("e", "c"))
    assert (since_s("b"), since_s("c")) == (110, 110)
    # Nobody makes it last by a time in the future, and an old list that is read again is not new.
    set_at(200, ("e", "d"), updated_s=9_000)
    assert since_s("d") == 200
    set_at(300, ("e", "f"), updated_s=100)
    assert since_s("f") is None
    assert found.new_ns("nobody", ("e", "b", 0)) == 0
