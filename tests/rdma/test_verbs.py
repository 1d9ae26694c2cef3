"""The verbs transport between real RNICs, healthy and with everything that `tc` can do."""

import math
import random
import resource
from collections import Counter
from collections.abc import Callable

import pytest

from probers.packet import MIN_PACKET_BYTES, UNSEALED, Packets
from probers.transports.base import Completion, Reason
from probers.transports.rdma.gids import gid_of
from probers.transports.rdma.library import RdmaError
from schemas.enums import ClockSource, ProbeStatus
from schemas.units import MS_NS
from tests.rdma.fabric import dropped, run, shape
from tests.rdma.pairs import PATIENT_NS, RdmaPair, measured, median_ns

SHORT_NS = 400 * MS_NS
DEAD = "::ffff:10.9.0.77"
# Each takes the emulated machine three milliseconds.
GARBAGE = 3_000


def resident_kb() -> int:
    """Return the memory that this process has in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def statuses(completions: list[Completion]) -> Counter[ProbeStatus]:
    """Count what became of probes."""
    return Counter(c.status for c in completions)


def test_every_probe_of_a_healthy_pair_is_answered(pair: RdmaPair) -> None:
    """All OK, stamped by the kernel, with both delays; the responder counts as many answers."""
    answered = pair.responder.counts.answered
    over = pair.run(60)
    assert statuses(over) == {ProbeStatus.OK: 60}
    assert {c.clock for c in over} == {ClockSource.KERNEL}
    assert {c.reporter for c in over} == {pair.responder.address}
    assert all(m.responder_delay_ns and m.responder_delay_ns > 0 for m in measured(over))
    assert pair.responder.counts.answered - answered == 60


@pytest.mark.parametrize("size", [MIN_PACKET_BYTES, 1_000, 1_024])
def test_sizes_up_to_the_mtu_come_back(pairs: Callable[..., RdmaPair], size: int) -> None:
    """What small probes do not meet, large ones may."""
    pair = pairs(probe_bytes=size)
    pair.settle()
    assert statuses(pair.run(8)) == {ProbeStatus.OK: 8}


def test_a_size_above_the_mtu_is_refused_with_the_bound(pairs: Callable[..., RdmaPair]) -> None:
    """The message says the size, the MTU and what to do."""
    with pytest.raises(RdmaError, match=r"probe_bytes=1025: the MTU of rxe0 is 1024"):
        pairs(probe_bytes=1_025)


def test_a_delay_of_20_ms_is_measured(pair: RdmaPair) -> None:
    """Put at the switch's port towards the responder, it adds 20 ms to the round trip."""
    before = median_ns(pair.run(40))
    shape("p1", "netem", "delay", "20ms", switch=True)
    after = median_ns(pair.run(40))
    assert 18 * MS_NS < after - before < 24 * MS_NS


def test_as_many_are_lost_as_the_switch_has_dropped(pair: RdmaPair) -> None:
    """10 % loss: every packet that `tc` counts as dropped is a probe that timed out."""
    shape("p1", "netem", "loss", "10%", switch=True)
    for _ in range(300):
        pair.prober.send(pair.probe(timeout_ns=SHORT_NS))
        pair.serve(0.002)
    lost = statuses(pair.collect(300))[ProbeStatus.TIMEOUT]
    # ARP of the same port may be among what was dropped.
    assert lost <= dropped("p1", switch=True) <= lost + 2
    assert 6 <= lost <= 55


def test_corrupted_packets_are_lost_in_their_share(pair: RdmaPair) -> None:
    """10 % corruption: the RNIC's check throws them away, and no answer is wrong."""
    shape("p1", "netem", "corrupt", "10%", switch=True)
    count = 300
    for _ in range(count):
        pair.prober.send(pair.probe(timeout_ns=SHORT_NS))
        pair.serve(0.002)
    found = statuses(pair.collect(count))
    assert set(found) <= {ProbeStatus.OK, ProbeStatus.TIMEOUT}
    spread = math.sqrt(count * 0.1 * 0.9)
    assert abs(found[ProbeStatus.TIMEOUT] - count * 0.1) < 4 * spread


@pytest.mark.parametrize("wrong", ["qkey", "port"])
def test_a_wrong_qkey_or_queue_pair_is_silence(pair: RdmaPair, wrong: str) -> None:
    """The RNIC drops it without a word; with what the endpoint has registered it is answered."""
    answered = pair.responder.counts.answered
    bad = {"qkey": pair.responder.qkey ^ 1, "port": pair.responder.port + 1_000}[wrong]
    pair.prober.send(pair.probe(timeout_ns=SHORT_NS, **{wrong: bad}))
    (completion,) = pair.collect(1)
    assert completion.status is ProbeStatus.TIMEOUT
    assert pair.responder.counts.answered == answered
    assert statuses(pair.run(4)) == {ProbeStatus.OK: 4}


def test_a_dead_target_holds_up_nobody(pair: RdmaPair) -> None:
    """While the kernel asks for the dead one's MAC address, the living are measured as ever."""
    usual = median_ns(pair.run(20))
    dead = [pair.probe(address=f"::ffff:10.9.0.{n}", timeout_ns=SHORT_NS) for n in range(70, 76)]
    for each in dead:
        pair.prober.send(each)
    living = [pair.probe(flow) for flow in range(4)]
    for each in living:
        pair.prober.send(each)
    over = {c.token: c for c in pair.collect(len(dead) + len(living))}
    assert {over[p.token].status for p in living} == {ProbeStatus.OK}
    assert median_ns([over[p.token] for p in living]) < 20 * usual
    assert {over[p.token].reason for p in dead} == {Reason.PENDING}


def test_who_cannot_be_reached_is_known_at_once_for_a_while(pair: RdmaPair) -> None:
    """The first probe waits for ARP; the next ones are told what came of it."""
    pair.prober.send(pair.probe(address=DEAD, timeout_ns=5 * PATIENT_NS))
    (first,) = pair.collect(1)
    pair.prober.send(pair.probe(address=DEAD, timeout_ns=5 * PATIENT_NS))
    (second,) = pair.prober.poll()
    assert {first.status, second.status} == {ProbeStatus.UNREACHABLE}


def test_with_the_own_port_down_there_is_no_route_to_anybody_new(pair: RdmaPair) -> None:
    """The kernel says so at once."""
    run("ip", "link", "set", "e0", "down")
    pair.prober.send(pair.probe(address="::ffff:10.9.0.78", timeout_ns=5 * PATIENT_NS))
    (completion,) = pair.collect(1, within_s=2.0)
    assert completion.status is ProbeStatus.NO_ROUTE


def test_a_queue_pair_in_error_comes_back_with_its_number(pair: RdmaPair) -> None:
    """Put into its error state, it gives back what it had, and is made ready again."""
    port = pair.responder._port
    number, broken = pair.responder.port, port._pairs[0]
    enums, qp = port._lib.enums, port._lib.qp
    broken.queue.modify(qp.QPAttr(qp_state=enums.IBV_QPS_ERR), enums.IBV_QP_STATE)
    pair.prober.send(pair.probe(timeout_ns=SHORT_NS))
    assert pair.collect(1)[0].status is ProbeStatus.TIMEOUT
    assert pair.responder.port == number
    assert statuses(pair.run(8)) == {ProbeStatus.OK: 8}


def test_garbage_gets_no_answer_and_harms_nobody(pairs: Callable[..., RdmaPair]) -> None:
    """Thousands of datagrams of anything: none answered, memory flat, probes work as before."""
    pair = pairs(packets=Packets([b"the key of this cluster"]))
    pair.settle()
    answered = pair.responder.counts.answered
    draw = random.Random(5)
    sender, to = pair.prober._port, (pair.responder.port, pair.responder.qkey)
    handle = sender.handle(gid_of(pair.responder.address).packed, 0)
    good = UNSEALED.probe(7)
    before_kb = 0
    for number in range(GARBAGE):
        data = bytearray(good if number % 2 else draw.randbytes(draw.randrange(1, 200)))
        data[draw.randrange(len(data))] ^= 1 + draw.randrange(255)
        sent = bytes(data[:MIN_PACKET_BYTES])
        sender.send(1, len(sent), lambda sent=sent: sent, handle, to)  # type: ignore[misc]
        if number % 32 == 0:
            pair.serve(0.01)
            pair.prober.poll()
        if number == GARBAGE // 2:
            before_kb = resident_kb()
    pair.serve(0.1)
    assert resident_kb() - before_kb < 512
    counts = pair.responder.counts
    assert counts.answered == answered
    assert counts.malformed + counts.forged > GARBAGE // 2
    assert statuses(pair.run(8)) == {ProbeStatus.OK: 8}


def test_strangers_get_no_answer(pairs: Callable[..., RdmaPair]) -> None:
    """With a key, probes made without it are counted and dropped; so are their replies."""
    sealed = pairs(packets=Packets([b"the key of this cluster"]))
    stranger = pairs(prober=2, responder=2)
    stranger.prober.send(
        stranger.probe(
            timeout_ns=PATIENT_NS,
            address=sealed.responder.address,
            port=sealed.responder.port,
            qkey=sealed.responder.qkey,
        )
    )
    over: list[Completion] = []
    while not over:
        sealed.serve(0.05)
        over = stranger.prober.poll()
    assert over[0].status is ProbeStatus.TIMEOUT
    assert (sealed.responder.counts.forged, sealed.responder.counts.answered) == (1, 0)
    sealed.settle()
