"""A real fabric process, real sockets: what each fault does to real packets."""

import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.lab.counters import counters_dir
from ops.lab.errors import LabUsageError
from ops.lab.shape import LabShape
from ops.lab.truth import TRUTH_FILE, TruthLog
from ops.lab.workload import Workload
from probers.transports.encap import DEFAULT_TTL, EncapType
from tests.lab_echo import Arrival
from tests.lab_mesh import ProcessMesh, process_mesh, thread_mesh

SHAPE = LabShape()
# Long for a packet on loopback, short for a test that waits for one that is lost.
LOST_S = 0.15
# For what must come, a stalled machine's patience.
COMES_S = 60.0
NEAR = ("job1-w0/r0", "job1-w1/r0")
FAR = ("job1-w0/r0", "job1-w2/r0")
RNIC_LINK = "link:leaf:p0-0--rnic:h0/r0"
OK = EncapType.DATA


@pytest.fixture(scope="module")
def lab() -> Iterator[ProcessMesh]:
    """Give one fabric process for all tests of the module."""
    with (
        tempfile.TemporaryDirectory(prefix="skh-") as name,
        process_mesh(Path(name), SHAPE, seed=7) as mesh,
    ):
        yield mesh


@pytest.fixture(autouse=True)
def _clean(lab: ProcessMesh) -> Iterator[None]:
    """Begin each test without arrivals, and check that it healed what it broke."""
    lab.mesh.arrivals.clear()
    yield
    assert lab.ask(op="status")["faults"] == []


def echo(
    lab: ProcessMesh, pair: tuple[str, str], *, count: int = 1, flows: int = 1
) -> list[Arrival]:
    """Probe a pair and return what came back, once all did or nothing moves any more."""
    lab.mesh.arrivals.clear()
    for i in range(count):
        lab.mesh.probe(*pair, flow=i % flows)
    moved: tuple[int, int] | None = None
    within_s = LOST_S
    # A fabric that stood still has packets yet to relay: it answers behind them.
    while len(lab.mesh.run_until(count, within_s)) < count and moved != (now := relayed(lab)):
        moved, within_s = now, LOST_S / 3
    return list(lab.mesh.arrivals)


def relayed(lab: ProcessMesh) -> tuple[int, int]:
    """Return how many packets the fabric and its endpoints have taken so far."""
    return lab.ask(op="status")["relayed"], lab.mesh.questions + len(lab.mesh.arrivals)


def answered(lab: ProcessMesh, pair: tuple[str, str]) -> bool:
    """Return whether a probe of the pair is answered."""
    return [a.kind for a in echo(lab, pair)] == [OK]


def trace(lab: ProcessMesh, pair: tuple[str, str], flow: int = 0) -> list[str]:
    """Return the components that answer to growing ttl, the target as "target"."""
    names = {address: node for node, address in lab.addresses.items()}
    found = []
    for ttl in range(1, 12):
        lab.mesh.arrivals.clear()
        lab.mesh.probe(*pair, flow=flow, ttl=ttl)
        (arrival,) = lab.mesh.run_until(1, COMES_S)
        found.append("target" if arrival.node is None else names[arrival.node])
        if arrival.node is None:
            break
    return found


def test_every_same_rail_pair_echoes(lab: ProcessMesh) -> None:
    """All 48 pairs, four flows each: every probe is answered once."""
    pairs = [
        (a.endpoint_id, b.endpoint_id)
        for a in SHAPE.endpoints
        for b in SHAPE.endpoints
        if a.rail == b.rail and a is not b
    ]
    numbers = [lab.mesh.probe(*pair, flow=flow) for pair in pairs for flow in range(4)]
    assert len(numbers) == 192
    arrivals = lab.mesh.run_until(len(numbers), COMES_S)
    assert sorted(a.number for a in arrivals) == numbers
    assert {a.kind for a in arrivals} == {OK}


def test_a_trace_names_the_nodes_in_order(lab: ProcessMesh) -> None:
    """Within a pod five nodes answer, across pods seven, of which the fourth is a spine."""
    assert trace(lab, NEAR) == [
        "vsw:h0", "rnic:h0/r0", "leaf:p0-0", "rnic:h1/r0", "vsw:h1", "target",
    ]  # fmt: skip
    spines = set()
    for flow in range(16):
        nodes = trace(lab, FAR, flow)
        spines.add(nodes[3])
        assert nodes == [
            "vsw:h0", "rnic:h0/r0", "leaf:p0-0", nodes[3], "leaf:p1-0", "rnic:h2/r0", "vsw:h2",
            "target",
        ]  # fmt: skip
    assert spines == {"spine:0", "spine:1"}


def test_a_cut_loses_and_healing_brings_back(lab: ProcessMesh) -> None:
    """Packets over the link vanish without a report; other pairs do not notice."""
    fault = lab.fault("link-cut", RNIC_LINK)
    assert echo(lab, NEAR) == []
    assert echo(lab, FAR) == []
    assert answered(lab, ("job1-w1/r0", "job1-w2/r0"))
    lab.heal(fault)
    assert answered(lab, NEAR)


def test_a_cut_spine_link_hits_the_flows_that_cross_it(lab: ProcessMesh) -> None:
    """By their traces, exactly the flows over the link are lost, in both directions."""
    over = {flow: trace(lab, FAR, flow)[3] for flow in range(8)}
    fault = lab.fault("link-cut", "link:leaf:p0-0--spine:0")
    for flow, spine in over.items():
        lab.mesh.arrivals.clear()
        lab.mesh.probe(*FAR, flow=flow)
        alive = bool(lab.mesh.run_until(1, LOST_S if spine == "spine:0" else COMES_S))
        assert alive == (spine != "spine:0")
    lab.heal(fault)


def test_one_direction_can_be_cut_alone(lab: ProcessMesh) -> None:
    """The question arrives, the answer does not."""
    fault = lab.fault("link-cut", RNIC_LINK, sender="leaf:p0-0")
    before = lab.mesh.questions
    assert echo(lab, NEAR) == []
    assert lab.mesh.questions == before + 1
    lab.heal(fault)


def test_loss_is_within_binomial_bounds(lab: ProcessMesh) -> None:
    """10 % per direction lose 19 % of the round trips, within 5 sigma of 2,000."""
    fault = lab.fault("link-loss", RNIC_LINK, percent=10)
    got = sum(len(echo(lab, NEAR, count=100)) for _ in range(20))
    lab.heal(fault)
    n, p = 2_000, 0.81
    assert abs(got - n * p) < 5 * (n * p * (1 - p)) ** 0.5
    assert len(echo(lab, NEAR, count=200)) == 200


def test_delay_is_added_to_each_crossing(lab: ProcessMesh) -> None:
    """5 ms for each direction: no round trip is shorter than 10 ms, the shortest hardly longer."""
    fault = lab.fault("link-delay", RNIC_LINK, ms=5)
    rtts: list[int] = []
    # A busy machine adds to all but a few: they may have to be sent again.
    while len(rtts) < 400 and (not rtts or min(rtts) >= 18e6):
        rtts += [a.rtt_ns for a in echo(lab, NEAR, count=20)]
    lab.heal(fault)
    assert len(rtts) % 20 == 0
    assert 10e6 <= min(rtts) < 18e6


def test_a_delayed_packet_holds_nobody_up(lab: ProcessMesh) -> None:
    """While packets wait 500 ms on one link, others go round in a few milliseconds."""
    fault = lab.fault("link-delay", RNIC_LINK, ms=500)
    for _ in range(10):
        lab.mesh.probe(*NEAR)
    other = echo(lab, ("job1-w2/r1", "job1-w3/r1"))
    # Held up, it would take as long as they wait; a busy machine takes less.
    assert other[0].rtt_ns < 450e6
    assert len(lab.mesh.run_until(1 + 10, COMES_S)) == 1 + 10
    lab.heal(fault)


def test_jitter_spreads(lab: ProcessMesh) -> None:
    """Up to 4 ms for each direction: round trips differ by milliseconds, none above 8 ms more."""
    fault = lab.fault("link-jitter", RNIC_LINK, ms=4)
    for _ in range(10):
        rtts = [a.rtt_ns for a in echo(lab, NEAR, count=50)]
        assert len(rtts) == 50
        # A machine that stood still for a moment spreads them more, or lets all come at once.
        if 1e6 < (spread := statistics.pstdev(rtts)) < 4e6:
            break
    lab.heal(fault)
    assert 1e6 < spread < 4e6


def test_corruption_arrives_as_corruption(lab: ProcessMesh) -> None:
    """Every packet is delivered, but not what was sent; the fabric counts it."""
    fault = lab.fault("link-corrupt", RNIC_LINK, percent=100)
    before = lab.mesh.malformed
    assert echo(lab, NEAR, count=10) == []
    assert lab.mesh.malformed == before + 10
    (link,) = [x for x in lab.ask(op="status")["links"] if x["sender"] == "rnic:h0/r0"]
    assert link["corrupted"] >= 10
    lab.heal(fault)
    assert answered(lab, NEAR)


def test_a_flapping_link_goes_down_and_up(lab: ProcessMesh) -> None:
    """Over some periods, probes are both lost and answered; each turn is in the truth."""
    fault = lab.fault("link-flap", RNIC_LINK, ms=400)
    seen: set[bool] = set()
    deadline = time.monotonic() + COMES_S
    while seen != {True, False} and time.monotonic() < deadline:
        seen.add(bool(echo(lab, NEAR)))
    lab.heal(fault)
    assert seen == {True, False}
    assert answered(lab, NEAR)
    actions = [t.action for t in TruthLog(lab.folder / TRUTH_FILE).read() if t.fault_id == fault]
    assert actions[:2] == ["inject", "up"]
    assert actions[-1] == "heal"


def test_a_switch_that_is_off_neither_forwards_nor_answers(lab: ProcessMesh) -> None:
    """Traces end before it in silence; what does not cross it goes on."""
    fault = lab.fault("switch-off", "leaf:p0-0")
    assert echo(lab, NEAR) == []
    lab.mesh.probe(*NEAR, ttl=3)
    assert lab.mesh.run_until(1, LOST_S) == []
    lab.mesh.probe(*NEAR, ttl=2)
    assert lab.mesh.run_until(1, COMES_S)[0].node == lab.addresses["rnic:h0/r0"]
    assert answered(lab, ("job1-w0/r3", "job1-w1/r3"))
    lab.heal(fault)
    assert answered(lab, NEAR)


def test_a_flow_hole_drops_silently(lab: ProcessMesh) -> None:
    """Only traffic to the destination dies, at that node, without a report."""
    fault = lab.fault("flow-hole", "vsw:h1", dst="job1-w1/r0")
    assert echo(lab, NEAR) == []
    assert answered(lab, ("job1-w0/r1", "job1-w1/r1"))
    lab.mesh.arrivals.clear()
    lab.mesh.probe(*NEAR, ttl=4)
    assert lab.mesh.run_until(1, COMES_S)[0].node == lab.addresses["rnic:h1/r0"]
    assert lab.ask(op="status")["dropped"]["flow table hole"] > 0
    lab.heal(fault)
    assert answered(lab, NEAR)


def test_a_flow_loop_is_ended_by_ttl(lab: ProcessMesh) -> None:
    """The packet dies after its 64 hops, and one of the two nodes says so."""
    fault = lab.fault("flow-loop", "rnic:h0/r0", dst="job1-w1/r0")
    before = lab.ask(op="status")["relayed"]
    (arrival,) = echo(lab, NEAR)
    assert arrival.kind is EncapType.TTL_EXCEEDED
    assert arrival.node in (lab.addresses["vsw:h0"], lab.addresses["rnic:h0/r0"])
    assert lab.ask(op="status")["relayed"] - before == DEFAULT_TTL - 1
    lab.heal(fault)
    assert answered(lab, NEAR)


def test_two_faults_on_a_link_heal_one_by_one(lab: ProcessMesh) -> None:
    """The delay that lies under a cut comes back when the cut heals."""
    delay, cut = lab.fault("link-delay", RNIC_LINK, ms=3), lab.fault("link-cut", RNIC_LINK)
    assert echo(lab, NEAR) == []
    lab.heal(cut)
    assert echo(lab, NEAR)[0].rtt_ns >= 6e6
    lab.heal(delay)
    assert answered(lab, NEAR)


def test_an_unknown_target_is_unreachable(lab: ProcessMesh) -> None:
    """The virtual switch answers for it, since it knows no way."""
    from probers.transports.encap import EncapHeader, pack, unpack, unpack_report

    mesh = lab.mesh
    src = NEAR[0]
    header = EncapHeader(
        entropy=1,
        src_address="127.0.0.1",
        src_port=mesh._ports[src],
        dst_address="127.0.0.1",
        dst_port=9,
    )
    opened = mesh._sockets[src]
    opened.sendto(pack(header, b"payload"), mesh._gateways[src])
    opened.settimeout(COMES_S)
    answer, payload = unpack(opened.recv(2_048))
    opened.setblocking(False)
    assert answer.type is EncapType.UNREACHABLE
    report = unpack_report(payload)
    assert (report.address, report.quoted) == (lab.addresses["vsw:h0"], b"payload")


@pytest.mark.parametrize(
    "datagram",
    [b"", b"x", b"SKE1", b"SKE1" + bytes(15), b"XXXX" + bytes(100), b"SKE1\x01" + bytes(80)],
)
def test_garbage_is_counted_and_ends_nothing(lab: ProcessMesh, datagram: bytes) -> None:
    """Foreign bytes, short headers and errors that were never asked for are dropped."""
    before = lab.ask(op="status")["dropped"].get("malformed", 0)
    lab.mesh._send(NEAR[0], datagram)
    assert answered(lab, NEAR)
    assert lab.ask(op="status")["dropped"]["malformed"] == before + 1


def test_a_stranger_gets_no_answers(lab: ProcessMesh) -> None:
    """A source address that is no endpoint of the lab is not answered: no reflector."""
    import socket

    from probers.transports.encap import EncapHeader, pack

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        header = EncapHeader(
            ttl=1,
            entropy=1,
            src_address="127.0.0.1",
            src_port=stranger.getsockname()[1],
            dst_address="127.0.0.1",
            dst_port=9,
        )
        stranger.sendto(pack(header, b""), lab.mesh._gateways[NEAR[0]])
        assert answered(lab, NEAR)
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(100)


def test_wrong_faults_are_refused(lab: ProcessMesh) -> None:
    """The fabric checks by itself, whoever asks; nothing is put in."""
    with pytest.raises(LabUsageError, match="did you mean"):
        lab.fault("link-cut", "link:leaf:p0-0--spine:7")
    with pytest.raises(LabUsageError, match="no fault of the fabric"):
        lab.fault("agent-kill", "agent-h0")


def test_counters_follow_the_workload(lab: ProcessMesh) -> None:
    """The files hold 4-byte words that grow along the closed form, and all hosts agree."""

    def read(host: int, rail: int, name: str) -> int:
        return int((counters_dir(lab.folder / "sys", host, rail) / name).read_text())

    begin_ns = time.monotonic_ns()
    deadline = time.monotonic() + COMES_S
    first = read(0, 0, "port_xmit_data")
    while read(0, 0, "port_xmit_data") == first and time.monotonic() < deadline:
        time.sleep(0.01)
    grown = read(0, 0, "port_xmit_data") - first
    # A period's worth, and of what the machine may have stood still.
    most_ns = 2_000_000_000 + time.monotonic_ns() - begin_ns
    assert 0 < grown <= Workload(shape=SHAPE).totals(most_ns)["job1-w0/r0"][0] // 4
    # Stage 0 of either replica, any rail: the same bytes at the same tick.
    values: set[int] = set()
    while len(values) != 1 and time.monotonic() < deadline:
        time.sleep(0.005)
        values = {read(host, rail, "port_rcv_data") for host in (0, 2) for rail in range(4)}
    assert len(values) == 1


def test_the_real_pairs_are_written_down(lab: ProcessMesh) -> None:
    """workload.json holds what an inference should find."""
    found = json.loads((lab.folder / "workload.json").read_text())
    assert found["dp"] == found["pp"] == 2
    assert {"a": "job1-w0/r0", "b": "job1-w1/r0", "why": "PP"} in found["pairs"]


def test_the_truth_is_written_at_the_instant(lab: ProcessMesh) -> None:
    """Between asking and being told lie the time in the file, and the effect."""
    before = time.time_ns()
    fault = lab.fault("link-cut", RNIC_LINK)
    after = time.time_ns()
    lab.heal(fault)
    lines = [t for t in TruthLog(lab.folder / TRUTH_FILE).read() if t.fault_id == fault]
    assert [t.action for t in lines] == ["inject", "heal"]
    assert before <= lines[0].at_ns <= after <= lines[1].at_ns
    assert lines[0].component_id == RNIC_LINK


def test_sigterm_ends_the_fabric_cleanly() -> None:
    """The process ends with code 0 and takes its socket with it."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        shape = LabShape(hosts=1, rails=1, pods=1, leaves=1, spines=1)
        with process_mesh(Path(name), shape) as mesh:
            child = mesh.group.child("fabric")
            os.kill(child.pid, signal.SIGTERM)
            assert child.process.wait(COMES_S) == 0
            assert not (Path(name) / "fabric.sock").exists()


def test_equal_seeds_lose_the_same_packets() -> None:
    """Loss is drawn from a seeded generator: the same probes in the same order, the same fate."""

    def survivors(seed: int) -> list[int]:
        with thread_mesh(LabShape(hosts=2, pods=1, rails=1, leaves=1), seed=seed) as lab:
            lab.fault("link-loss", "link:leaf:p0-0--rnic:h0/r0", percent=50)
            for _ in range(60):
                lab.mesh.probe("job1-w0/r0", "job1-w1/r0")
                # All of it is in this thread: so many turns take a packet there and back.
                for _ in range(40):
                    lab.mesh.loop.run_once(0)
            return [a.number for a in lab.mesh.arrivals]

    first = survivors(11)
    assert first == survivors(11)
    assert first != survivors(12)


def test_the_fabric_is_cheap() -> None:
    """All probes are answered at 400 a second, below 40 µs of CPU for each packet and hop."""
    rate_hz, count, flows = 400, 800, 4
    pairs = [
        (a.endpoint_id, b.endpoint_id, flow)
        for a in SHAPE.endpoints
        for b in SHAPE.endpoints
        if a.rail == b.rail and a is not b
        for flow in range(flows)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="skh-") as name,
        process_mesh(Path(name), SHAPE) as lab,
    ):
        before = lab.ask(op="status")
        begin_ns = time.monotonic_ns()
        for n in range(count):
            due_ns = begin_ns + round(n / rate_hz * 1e9)
            while (left_ns := due_ns - time.monotonic_ns()) > 0:
                lab.mesh.loop.run_once(left_ns)
            src, dst, flow = pairs[n % len(pairs)]
            lab.mesh.probe(src, dst, flow=flow)
        lab.mesh.run_until(count, 2.0)
        after = lab.ask(op="status")
        assert len(lab.mesh.arrivals) == count
    hops = after["relayed"] - before["relayed"]
    assert (after["cpu_ns"] - before["cpu_ns"]) / 1e3 / hops < 40
