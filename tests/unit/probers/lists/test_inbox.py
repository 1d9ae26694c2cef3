"""Which records an agent reads, and what becomes of those it cannot."""

import pytest

from probers.lists.directory import Directory
from probers.lists.follower import PingListFollower, Refusal
from probers.lists.inbox import MAX_VALUE_BYTES, READ_ANEW_NS, REREAD_GAP_NS, Inbox, Record
from probers.lists.registration import REASSERT_NS, Registration, RegistrationState
from schemas import topics
from schemas.bounds import BOUNDS, Bound, Measure
from schemas.codec import Codec, DecodeError
from schemas.kafka.deadletter import Headers
from schemas.process.eventlog import EventLog
from schemas.topics import Topic
from schemas.trace_budget import budget_header
from tests.unit.probers.clocks import ManualClock
from tests.unit.probers.makers import endpoint, ping_list, target
from tests.unit.schemas.valid import ARRIVAL_NS, mutated, probes_of, valid_datum

CODEC = Codec()


class FakeReader:
    """Hands out what tests put in."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.read_to_end = True
        self.restarts = 0
        self.reread_topics: list[str] = []
        # Whether the broker has copies of registrations, and which topic was followed last.
        self.copies = False
        self.followed = "target.v1"

    def has(self, topic: Topic) -> bool:
        """Return what the test has set."""
        return self.copies or topic is not topics.TARGET

    def follow(self, topic: Topic) -> None:
        """Take note."""
        self.followed = topic.name
        self.read_to_end = False

    def leave(self, topic: Topic) -> None:
        """Take note that it is not the other one."""
        assert topic is topics.ENDPOINT

    def poll(self) -> list[Record]:
        """Return what was put in."""
        records, self.records = self.records, []
        return records

    def take_restarts(self) -> int:
        """Return what the test has set."""
        restarts, self.restarts = self.restarts, 0
        return restarts

    def reread(self, topic: Topic) -> None:
        """Take note."""
        self.reread_topics.append(topic.name)
        self.read_to_end = False


class Rig:
    """An inbox of agent-a and what it tells."""

    def __init__(self, *, spare: int = 100, copies: bool = False) -> None:
        self.clock = ManualClock()
        self.reader = FakeReader()
        self.reader.copies = copies
        self.dead: list[tuple[DecodeError, bytes | None, bytes]] = []
        self.follower = PingListFollower(
            cluster="c1",
            agent_id="agent-a",
            endpoints=frozenset({"w0/r0"}),
            max_flows=4,
            directory=Directory(spare),
        )
        self.registration = Registration(agent_id="agent-a", cluster="c1", started=self.clock.now())
        self.inbox = Inbox(
            agent_id="agent-a",
            reader=self.reader,
            codec=CODEC,
            clock=self.clock,
            follower=self.follower,
            registration=self.registration,
            dead_letters=self,
            log=EventLog("test"),
        )
        if not copies:
            self.inbox.poll()
            assert self.reader.followed == "endpoint.v1"
            self.reader.read_to_end = True

    def dead_letter(
        self, error: DecodeError, *, key: bytes | None, value: bytes, headers: Headers
    ) -> None:
        """Keep a dead letter."""
        assert list(headers) == []
        self.dead.append((error, key, value))

    def read(
        self,
        topic: Topic,
        key: bytes | None,
        value: bytes | None,
        *,
        replayed: bool = False,
        arrival_ns: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Let one record arrive."""
        self.reader.records.append(
            Record(
                topic=topic,
                partition=2,
                offset=7,
                key=key,
                value=value,
                headers=headers or [],
                replayed=replayed,
                arrived_ns=arrival_ns,
            )
        )
        self.inbox.poll()


def list_bytes(version: int = 1, cluster: str = "c1") -> bytes:
    """Return a ping list with one target."""
    record = ping_list(target("w0/r0", "w1/r0"), version=version, cluster=cluster)
    return CODEC.encode(topics.PINGLIST, record)


def endpoint_bytes(name: str = "w1/r0", port: int = 4_000) -> bytes:
    """Return a registration."""
    return CODEC.encode(topics.ENDPOINT, endpoint(name, port=port))


def test_the_own_list_and_registrations_are_taken() -> None:
    """A list, then its endpoint: one active target."""
    rig = Rig()
    rig.read(topics.PINGLIST, b"agent-a", list_bytes())
    rig.read(topics.ENDPOINT, b"w1/r0", endpoint_bytes())
    assert rig.follower.targets_active == 1
    rig.read(topics.ENDPOINT, b"w1/r0", None)
    assert rig.follower.targets_active == 0
    rig.read(topics.PINGLIST, b"agent-a", None)
    assert rig.follower.version is None


def test_lists_of_others_are_not_even_decoded() -> None:
    """Thousands of agents share the topic: another's poison is not ours to tell."""
    rig = Rig()
    rig.read(topics.PINGLIST, b"agent-b", b"garbage")
    assert rig.inbox.counts.undecodable == 0
    assert rig.dead == []


def test_poison_is_counted_and_kept_and_nothing_stops() -> None:
    """Own list, a list without a key, a registration: each a dead letter with its place."""
    rig = Rig()
    rig.read(topics.PINGLIST, b"agent-a", b"garbage")
    rig.read(topics.PINGLIST, None, b"")
    rig.read(topics.ENDPOINT, b"w1/r0", endpoint_bytes()[:-3])
    rig.read(topics.ENDPOINT, b"\xff\xfe", b"\x00" * 50)
    assert rig.inbox.counts.undecodable == 4
    assert [(e.topic, e.partition, e.offset) for e, _, _ in rig.dead] == [
        ("pinglist.v1", 2, 7),
        ("pinglist.v1", 2, 7),
        ("endpoint.v1", 2, 7),
        ("endpoint.v1", 2, 7),
    ]
    assert rig.dead[0][1:] == (b"agent-a", b"garbage")
    rig.read(topics.PINGLIST, b"agent-a", list_bytes())
    assert rig.follower.version == 1


def test_a_huge_record_is_not_decoded() -> None:
    """What would cost the agent its memory goes to the dead letters, too."""
    rig = Rig()
    for topic in (topics.PINGLIST, topics.ENDPOINT):
        rig.read(topic, b"agent-a", bytes(MAX_VALUE_BYTES[topic.name] + 1))
    assert ["an agent decodes at most" in e.reason for e, _, _ in rig.dead] == [True, True]


def test_a_refused_list_is_remembered_until_one_is_taken() -> None:
    """The heartbeat tells of it as long as it lasts; an old version is no refusal to tell."""
    rig = Rig()
    rig.read(topics.PINGLIST, b"agent-a", list_bytes(cluster="elsewhere"))
    assert rig.inbox.counts.refusal is Refusal.OTHER_CLUSTER
    rig.read(topics.PINGLIST, b"agent-a", list_bytes(version=5))
    assert rig.inbox.counts.refusal is None
    rig.read(topics.PINGLIST, b"agent-a", list_bytes(version=4))
    assert rig.inbox.counts.refusal is None
    assert rig.follower.version == 5


def test_a_registration_under_a_foreign_key_is_not_taken() -> None:
    """Its tombstone would never reach it."""
    rig = Rig()
    rig.read(topics.PINGLIST, b"agent-a", list_bytes())
    rig.read(topics.ENDPOINT, b"w5/r0", endpoint_bytes("w1/r0"))
    assert rig.follower.targets_active == 0


def test_the_end_of_the_topics_starts_registering() -> None:
    """Before, the agent only reads."""
    rig = Rig()
    rig.reader.read_to_end = False
    rig.read(topics.ENDPOINT, b"w1/r0", endpoint_bytes())
    before = rig.registration.state
    rig.reader.read_to_end = True
    rig.inbox.poll()
    assert (before, rig.registration.state) == (
        RegistrationState.READING,
        RegistrationState.REGISTERED,
    )


def test_what_was_forgotten_is_read_again_but_not_all_the_time() -> None:
    """A list that names a forgotten endpoint: one more reading; the next no sooner than later."""
    rig = Rig(spare=1)
    for number in range(1, 4):
        rig.read(topics.ENDPOINT, b"w%d/r0" % number, endpoint_bytes(f"w{number}/r0"))
    rig.read(topics.PINGLIST, b"agent-a", list_bytes(version=1))
    assert rig.reader.reread_topics == ["endpoint.v1"]
    assert rig.follower.targets_active == 0
    rig.read(topics.ENDPOINT, b"w1/r0", endpoint_bytes(port=9), replayed=True)
    assert rig.follower.targets_active == 0
    rig.reader.read_to_end = True
    rig.inbox.poll()
    assert [f.port for f in rig.follower.flows()] == [9]
    record = ping_list(target("w0/r0", "w8/r0"), version=2)
    rig.read(topics.PINGLIST, b"agent-a", CODEC.encode(topics.PINGLIST, record))
    assert len(rig.reader.reread_topics) == 1
    rig.clock.advance(REREAD_GAP_NS + 1)
    rig.inbox.poll()
    assert len(rig.reader.reread_topics) == 2


def test_a_topic_that_lost_its_records_gets_our_registration_again() -> None:
    """A broker that came back empty: the agent registers anew, and is not alone for ever."""
    rig = Rig()
    rig.inbox.poll()
    rig.registration.present(endpoint("w0/r0", agent_id="agent-a"))
    (own,) = rig.registration.due(rig.clock.now())
    rig.read(topics.ENDPOINT, b"w0/r0", CODEC.encode(topics.ENDPOINT, own.endpoint))
    assert rig.registration.due(rig.clock.now()) == []
    rig.clock.advance(REASSERT_NS)
    rig.reader.restarts = 1
    rig.inbox.poll()
    assert len(rig.registration.due(rig.clock.now())) == 1


def test_the_second_reading_concerns_neither_the_identity_nor_the_dead_letters() -> None:
    """Our own past, read again, is no other agent; known poison is not told twice."""
    rig = Rig()
    rig.inbox.poll()
    rig.registration.present(endpoint("w0/r0", agent_id="agent-a"))
    rig.registration.due(rig.clock.now())
    old = endpoint("w0/r0", agent_id="agent-a", incarnation=5)
    rig.read(topics.ENDPOINT, b"w0/r0", CODEC.encode(topics.ENDPOINT, old), replayed=True)
    rig.read(topics.ENDPOINT, b"w0/r0", None, replayed=True)
    rig.read(topics.ENDPOINT, b"w0/r0", b"garbage", replayed=True)
    assert rig.registration.conflicts == 0
    assert rig.dead == []
    rig.read(topics.ENDPOINT, b"w0/r0", CODEC.encode(topics.ENDPOINT, old))
    assert rig.registration.conflicts == 1


COPIED = [topics.REGISTRATIONS_HEADER]


def test_a_list_tells_the_budget_of_traces() -> None:
    """The list in force does; one that tells none, or nonsense, takes it away."""
    rig = Rig()
    for headers, version, budget in (
        ([budget_header(1_000)], 1, 16),
        ([budget_header(100_000)], 2, 4),
        ([("trace-budget", b"10**9")], 3, None),
        ([budget_header(1)], 4, 64),
        ([], 5, None),
    ):
        rig.read(topics.PINGLIST, b"agent-a", list_bytes(version), headers=headers)
        assert rig.follower.trace_budget == budget


def test_copies_are_all_that_an_agent_reads() -> None:
    """With the header of its list, or before it has one, where the skeleton job writes copies."""
    rig = Rig(copies=True)
    rig.read(topics.TARGET, b"w1/r0", endpoint_bytes())
    assert rig.registration.state is RegistrationState.REGISTERED
    rig.read(topics.PINGLIST, b"agent-a", list_bytes(), headers=COPIED)
    assert rig.follower.targets_active == 1
    rig.read(topics.TARGET, b"w1/r0", None)
    assert rig.follower.targets_active == 0
    assert rig.reader.followed == "target.v1"


def test_registrations_are_read_where_the_skeleton_job_of_the_day_puts_them() -> None:
    """An upgrade, and back: what is known stays in force until the other topic has been read."""
    rig = Rig(copies=True)
    rig.inbox.poll()
    assert rig.reader.followed == "endpoint.v1"  # nobody has written copies
    rig.reader.read_to_end = True
    rig.read(topics.PINGLIST, b"agent-a", list_bytes())
    rig.read(topics.ENDPOINT, b"w1/r0", endpoint_bytes(port=1))
    for version, (source, headers) in enumerate(
        [(topics.TARGET, COPIED), (topics.ENDPOINT, []), (topics.TARGET, COPIED)], 2
    ):
        rig.read(topics.PINGLIST, b"agent-a", list_bytes(version), headers=headers)
        assert rig.reader.followed == source.name
        # The past, and what others have registered; of the other topic nothing counts.
        rig.read(source, b"w1/r0", endpoint_bytes(port=9))
        rig.read(source, b"w1/r0", None)
        rig.read(source, b"w1/r0", endpoint_bytes(port=version))
        other = topics.ENDPOINT if source is topics.TARGET else topics.TARGET
        rig.read(other, b"w1/r0", None)
        assert [f.port for f in rig.follower.flows()] == [version - 1]
        rig.reader.read_to_end = True
        rig.inbox.poll()
        assert [f.port for f in rig.follower.flows()] == [version]


def test_of_the_own_past_only_the_end_counts_when_registrations_are_read_anew() -> None:
    """Predecessors and tombstones before the own registration are no conflict; one after it is."""
    rig = Rig(copies=True)
    rig.read(topics.TARGET, b"w9/r0", endpoint_bytes("w9/r0"))
    rig.registration.present(endpoint("w0/r0", agent_id="agent-a"))
    (announced,) = rig.registration.due(rig.clock.now())
    own = CODEC.encode(topics.ENDPOINT, announced.endpoint)
    before = CODEC.encode(topics.ENDPOINT, endpoint("w0/r0", agent_id="agent-a", incarnation=5))
    rig.read(topics.TARGET, b"w0/r0", own)
    for last, conflicts, state in (
        (own, 0, RegistrationState.REGISTERED),
        (before, 1, RegistrationState.REGISTERED),
    ):
        rig.clock.advance(READ_ANEW_NS)  # this process stood still
        rig.inbox.poll()
        assert rig.reader.read_to_end is False
        for value in (before, None, own, before, last):
            rig.read(topics.TARGET, b"w0/r0", value)
        assert rig.registration.conflicts == 0
        rig.reader.read_to_end = True
        rig.inbox.poll()
        assert (rig.registration.conflicts, rig.registration.state) == (conflicts, state)


ROWS = [
    b
    for b in BOUNDS
    if b.topic in (topics.PINGLIST.name, topics.ENDPOINT.name) and b.measure is not Measure.ITEMS
]


@pytest.mark.parametrize("bound", ROWS, ids=[f"{b.topic}:{b.field}" for b in ROWS])
def test_each_bound_holds(bound: Bound) -> None:
    """What is out of bounds is a dead letter that names the field, and is counted."""
    topic = topics.BY_NAME[bound.topic]
    for value, allowed in probes_of(bound):
        datum = mutated(valid_datum(bound.topic), bound, value)
        if topic is topics.PINGLIST:
            datum |= {"agent_id": "agent-a"} if bound.field != "agent_id" else {}
        try:
            encoded = CODEC.encode_datum(topic, datum)
        except (OverflowError, ValueError):
            continue  # no encoder writes it
        rig = Rig()
        key = b"agent-a" if topic is topics.PINGLIST else str(datum["endpoint_id"]).encode()
        rig.read(topic, key, encoded, arrival_ns=ARRIVAL_NS)
        assert rig.inbox.counts.undecodable == len(rig.dead) == (0 if allowed else 1)
        if rig.dead:
            assert bound.field in rig.dead[0][0].reason or "bytes" in rig.dead[0][0].reason
