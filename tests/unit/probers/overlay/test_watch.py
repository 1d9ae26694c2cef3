"""When tables are read, and what is published of them."""

from dataclasses import replace

from probers.clock import Instant
from probers.overlay.watch import (
    EVICTIONS,
    FAILURES,
    GAP_NS,
    MAX_LOCALS,
    LocalEndpoints,
    OverlayWatch,
    Publication,
)
from probers.overlay.wire import Answer, Finding, Request, Way
from probers.probing.plan import FlowTarget
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.process.eventlog import EventLog
from schemas.records import ProbeResult
from schemas.units import SECOND_NS
from tests.unit.probers.overlay.made import config, endpoint

FLOWS = (FlowTarget("e0", "e9", 0, "10.1.0.9", 4_000, Transport.UDP, 0),)
SENT = Finding("10.1.0.9", Way.TUNNEL, remote="10.9.0.9")
GOOD = Answer(read=True, findings=[SENT], macs={"10.1.0.9": "02:00:00:00:00:09"})
BAD = Answer(troubles=["ovs-appctl: Permission denied"])


def at(seconds: float) -> Instant:
    """Return that moment."""
    return Instant(int(seconds * SECOND_NS), int((1_700_000_000 + seconds) * SECOND_NS))


def result(status: ProbeStatus) -> ProbeResult:
    """Return a probe's result."""
    return ProbeResult(
        src="e0", dst="e9", flow=0, sent_offset_ns=0, transport=Transport.UDP, status=status,
        clock=ClockSource.KERNEL,
    )  # fmt: skip


class Scripted:
    """Answers what it is told to, one poll after it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answer: Answer | None = GOOD
        self.busy = False
        self.closed = False

    def start(self, request: Request, now_ns: int) -> None:
        """Begin."""
        assert now_ns >= 0
        self.asked.append(request)
        self.busy = True

    def poll(self, now_ns: int) -> Answer | None:
        """Return the answer."""
        assert now_ns >= 0
        self.busy = self.answer is None
        return self.answer

    def close(self) -> None:
        """End."""
        self.closed = True


class Bench:
    """A watch with a scripted child, and a clock."""

    def __init__(self, **settings: object) -> None:
        self.child = Scripted()
        self.watch = OverlayWatch(
            config(**settings), host_id="h0", cluster="c1", log=EventLog("test"), child=self.child
        )
        self.watch.registered(endpoint("e0", "10.1.0.1"))

    def turn(self, seconds: float) -> list[Publication]:
        """Poll twice: what is due is begun, and then answered."""
        return [*self.watch.poll(FLOWS, at(seconds)), *self.watch.poll(FLOWS, at(seconds))]


def test_tables_are_read_at_the_interval_and_published_when_they_change() -> None:
    """The same content again is published only after republish_s."""
    bench = Bench()
    ((entries, captured),) = bench.turn(0)
    assert entries is not None
    assert {e.dst for e in entries} == {"e9"}
    assert captured == at(0)
    assert bench.watch.published
    assert bench.turn(29) == []
    assert len(bench.child.asked) == 1
    assert bench.turn(31) == []
    assert len(bench.child.asked) == 2
    bench.child.answer = Answer(read=True, findings=[replace(SENT, remote="10.9.0.8")])
    assert len(bench.turn(62)) == 1
    assert bench.turn(93) == []
    assert len(bench.turn(62 + 600)) == 1


def test_the_child_is_told_what_is_in_use_and_what_is_known() -> None:
    """Destinations of the ping list, endpoints of the host, and Ethernet addresses seen."""
    bench = Bench()
    bench.turn(0)
    bench.turn(31)
    (first, second) = bench.child.asked
    assert [(d.address, d.local, d.mac) for d in first.destinations] == [
        ("10.1.0.9", False, None), ("10.1.0.1", True, None),
    ]  # fmt: skip
    assert second.destinations[0].mac == "02:00:00:00:00:09"
    assert dict(second.commands) == dict(config().commands)


def test_a_newly_lost_flow_is_a_reason_to_read_at_once() -> None:
    """But not sooner than some seconds after the last reading, and once per loss."""
    bench = Bench()
    bench.turn(0)
    bench.watch.probed([result(ProbeStatus.TIMEOUT)], at(1))
    assert bench.turn(2) == []
    assert len(bench.child.asked) == 1
    bench.turn(GAP_NS / SECOND_NS)
    assert len(bench.child.asked) == 2
    bench.watch.probed([result(ProbeStatus.TIMEOUT)], at(12))
    bench.turn(12)
    assert len(bench.child.asked) == 2
    bench.watch.probed([result(ProbeStatus.OK)], at(13))
    bench.watch.probed([result(ProbeStatus.UNREACHABLE)], at(14))
    bench.turn(14)
    assert len(bench.child.asked) == 3


def test_the_own_link_is_no_reason_to_read() -> None:
    """What was not sent says nothing about tables."""
    bench = Bench()
    bench.turn(0)
    bench.watch.probed([result(ProbeStatus.LINK_DOWN)], at(6))
    bench.turn(7)
    assert len(bench.child.asked) == 1


def test_tables_that_cannot_be_read_any_more_are_taken_back() -> None:
    """The reason is told at once; what was published stays for some readings."""
    bench = Bench()
    bench.turn(0)
    bench.child.answer = BAD
    for number in range(1, FAILURES):
        assert bench.turn(31 * number) == []
        assert bench.watch.trouble == "ovs-appctl: Permission denied"
    ((entries, _),) = bench.turn(31 * FAILURES)
    assert entries is None
    assert not bench.watch.published
    assert bench.turn(31 * (FAILURES + 1)) == []
    bench.child.answer = GOOD
    assert len(bench.turn(31 * (FAILURES + 2))) == 1
    assert bench.watch.trouble is None


def test_nobody_to_talk_to_is_nothing_to_read() -> None:
    """Without destinations and endpoints no process is started."""
    bench = Bench()
    bench.watch.left("e0")
    assert bench.watch.poll((), at(0)) == []
    assert bench.child.asked == []


def test_a_reading_under_way_is_waited_for_and_ended_at_the_end() -> None:
    """There is one at a time."""
    bench = Bench()
    bench.child.answer = None
    for seconds in (0, 31, 62):
        assert bench.turn(seconds) == []
    assert len(bench.child.asked) == 1
    bench.watch.close()
    assert bench.child.closed


def test_endpoints_of_the_host_are_those_registered_there() -> None:
    """Other hosts and clusters are not; who moves away or leaves is gone; bounded."""
    book = LocalEndpoints(host_id="h0", cluster="c1")
    book.registered(endpoint("e0", "10.1.0.1"))
    book.registered(endpoint("e1", "10.1.0.2", host="h1"))
    book.registered(endpoint("e2", "10.1.0.3", cluster="c2"))
    assert book.addresses == {"e0": "10.1.0.1"}
    book.registered(endpoint("e0", "10.1.0.1", host="h1"))
    assert book.addresses == {}
    for number in range(MAX_LOCALS + 5):
        book.registered(endpoint(f"x{number}", "10.1.0.4"))
    assert len(book.addresses) == MAX_LOCALS
    book.left("x0")
    assert len(book.addresses) == MAX_LOCALS - 1


def told(bench: Bench, seconds: float, *, offloaded: bool | None) -> list[tuple[float | None, str]]:
    """Read tables in which hardware has the destination, or not; return what is told of it."""
    bench.child.answer = Answer(read=True, findings=[replace(SENT, offloaded=offloaded)])
    bench.turn(seconds)
    states = bench.watch.take_reports()
    assert all((s.component_id, s.attribute) == ("v0", EVICTIONS) for s in states)
    return [(s.value.number, s.value.missing_reason or "") for s in states]


def test_flows_that_hardware_loses_are_told_of_the_virtual_switch() -> None:
    """From the second reading on; when it changes; unknown once tables are."""
    bench = Bench()
    assert told(bench, 0, offloaded=True) == []
    assert told(bench, 31, offloaded=False) == [(0.0, "")]
    assert told(bench, 62, offloaded=True) == [(0.0323, "")]
    assert told(bench, 93, offloaded=True) == [(0.0, "")]
    assert told(bench, 124, offloaded=True) == []
    bench.child.answer = BAD
    for number in range(FAILURES):
        bench.turn(155 + 31 * number)
    (state,) = bench.watch.take_reports()
    assert (state.value.number, state.value.missing_reason) == (
        None,
        "the flow tables cannot be read",
    )
    assert bench.watch.take_reports() == []


def test_without_hardware_nothing_is_told_of_it() -> None:
    """No command asks it, so no number would be true."""
    bench = Bench(offloaded_command=[])
    assert told(bench, 0, offloaded=None) == []
    assert told(bench, 31, offloaded=None) == []
