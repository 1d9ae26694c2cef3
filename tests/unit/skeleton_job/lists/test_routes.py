"""Copies of registrations: where they stand; a restart or another order changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas import avro
from schemas.kafka.murmur2 import partition_of
from schemas.records import Endpoint
from skeleton_job.lists.routes import Copy, Routes
from tests.unit.probers.makers import endpoint

PARTITIONS = 4
Standing = dict[tuple[int, str], bytes]


def place(agent_id: str) -> int:
    """Return the partition of an agent."""
    return partition_of(agent_id.encode(), PARTITIONS)


def needed(
    registered: dict[str, tuple[Endpoint, bytes]], lists: dict[str, frozenset[str]]
) -> Standing:
    """Return which copies must stand, the slow way: each agent asks for each endpoint."""
    agents = {e.agent_id for e, _ in registered.values()} | lists.keys()
    found: Standing = {}
    for agent_id in agents:
        hosts = {e.host_id for e, _ in registered.values() if e.agent_id == agent_id}
        for name, (record, value) in registered.items():
            if record.host_id in hosts or name in lists.get(agent_id, ()):
                found[place(agent_id), name] = value
    return found


def write(routes: Routes, standing: Standing) -> list[Copy]:
    """Write what is due as the topic would keep it; return it."""
    due = list(routes.due())
    for copy in due:
        if copy.value is None:
            standing.pop((copy.partition, copy.endpoint_id), None)
        else:
            standing[copy.partition, copy.endpoint_id] = copy.value
    return due


NAMES = st.sampled_from([f"w{n}/r0" for n in range(5)])
AGENTS = st.sampled_from([f"agent-{n}" for n in range(6)])
REGISTER = st.tuples(
    st.just("register"),
    NAMES,
    AGENTS,
    st.sampled_from(["h0", "h1", "h2"]),
    st.binary(min_size=1, max_size=1),
)
STEPS = st.one_of(
    REGISTER,
    st.tuples(st.just("leave"), NAMES),
    st.tuples(st.just("list"), AGENTS, st.frozensets(NAMES)),
    st.tuples(st.sampled_from(["write", "restart"])),
    st.tuples(st.just("lost"), st.integers(0, 3)),
)


@given(st.lists(STEPS, max_size=40))
def test_what_stands_is_what_is_needed(steps: list[Any]) -> None:
    """Whatever happens: after writing each copy stands where it is needed, and nowhere else."""
    routes = Routes(PARTITIONS)
    registered: dict[str, tuple[Endpoint, bytes]] = {}
    lists: dict[str, frozenset[str]] = {}
    standing: Standing = {}

    def register(name: str, agent_id: str, host_id: str, value: bytes) -> None:
        record = replace(endpoint(name), agent_id=agent_id, host_id=host_id)
        registered[name] = record, value
        routes.set_registration(name, record, value)

    def leave(name: str) -> None:
        registered.pop(name, None)
        routes.set_registration(name, None, None)

    def listed(agent_id: str, targets: frozenset[str]) -> None:
        lists[agent_id] = targets
        routes.set_targets(agent_id, targets)

    def lost(number: int) -> None:
        for copy in write(routes, standing)[number : number + 1]:
            # The broker did not take it: what stood there before stands there.
            standing.pop((copy.partition, copy.endpoint_id), None)
            routes.failed(copy)
            if copy.value is None:
                standing[copy.partition, copy.endpoint_id] = b"left behind"

    def restart() -> None:
        nonlocal routes
        routes = Routes(PARTITIONS)
        for (partition, name), value in standing.items():
            routes.restore(partition, name, value)
        for agent_id, targets in lists.items():
            routes.set_targets(agent_id, targets)
        for name, (record, value) in registered.items():
            routes.set_registration(name, record, value)

    act: dict[str, Callable[..., Any]] = {
        "register": register, "leave": leave, "list": listed, "lost": lost, "restart": restart,
        "write": lambda: write(routes, standing),
    }  # fmt: skip
    for what, *arguments in steps:
        act[what](*arguments)
    write(routes, standing)
    assert standing == needed(registered, lists)
    restart()
    assert write(routes, standing) == []


def test_a_registration_costs_as_many_copies_as_agents_probe_it() -> None:
    """However many agents and endpoints there are: one copy for each partition of its probers."""
    routes = Routes(1_000)
    for number in range(500):
        name = f"w{number}/r0"
        record = replace(endpoint(name), agent_id=f"agent-{number}", host_id=f"h{number}")
        routes.set_registration(name, record, b"1")
        routes.set_targets(f"agent-{number}", [f"w{(number + 1) % 500}/r0"])
    assert len(list(routes.due())) == 1_000
    again = replace(endpoint("w7/r0"), agent_id="agent-7", host_id="h7")
    routes.set_registration("w7/r0", again, b"2")
    own, prober = (partition_of(b"agent-%d" % n, 1_000) for n in (7, 6))
    assert set(routes.due()) == {Copy(own, "w7/r0", b"2"), Copy(prober, "w7/r0", b"2")}


def test_copies_are_read_by_the_schemas_of_registrations() -> None:
    """The job copies bytes: each version that an agent may write must be known of both topics."""
    texts = [[v.text for v in avro.versions(topic)] for topic in ("endpoint.v1", "target.v1")]
    assert texts[0] == texts[1]
