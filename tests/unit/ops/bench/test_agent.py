"""What the agent's benchmark computes: /proc, rounds, traffic, the slope of a soak."""

import os
import time

import pytest

from ops.bench.agent.agent import outage, wire_kbit_s
from ops.bench.agent.peers import INTERVAL_NS, LOOPBACK, Peers, Traffic, schedule
from ops.bench.agent.rig import MEASURED, AgentOutput
from ops.bench.agent.soak import growth_bar_kb_h, slope
from ops.bench.rig import process_cost
from probers.clock import SystemClock
from probers.transports.base import Completion, Probe
from probers.transports.sockets import LINUX
from probers.transports.udp import UdpTransport
from schemas.records import ProbeRound
from tests.unit.ops.test_doctor import heartbeat


def heard(seqs: list[int], dropped: int) -> AgentOutput:
    """Return what is known after these rounds and a heartbeat."""
    found = AgentOutput()
    for seq in seqs:
        found.observe(
            ProbeRound(
                cluster="c",
                agent_id=MEASURED,
                host_id="h",
                incarnation=1,
                round_seq=seq,
                started_at=seq,
                interval_ns=10**9,
                results=(),
            )
        )
    found.heartbeat = heartbeat(MEASURED, rounds_dropped=dropped)
    return found


def test_every_round_is_delivered_or_counted_or_missed() -> None:
    """Of six rounds two are gone, one of them counted; one came twice."""
    end = outage(heard([0, 1, 4, 5, 5], dropped=1))
    assert (end.delivered, end.dropped, end.unaccounted, end.twice) == (4, 1, 1, 1)
    assert outage(heard([0, 1, 4, 5], dropped=2)).unaccounted == 0


def test_the_wire_carries_headers_and_the_busiest_rnic_counts() -> None:
    """Forty packets of 50 bytes a second: 40 x 92 x 8 bits."""
    idle = Traffic()
    busy = Traffic(probes=10, replies=10, asked=10, answered=10, payload_bytes=40 * 50)
    assert wire_kbit_s([idle, busy], 1.0) == pytest.approx(29.44)
    assert wire_kbit_s([busy, idle], 2.0) == pytest.approx(14.72)


def test_a_process_name_does_not_move_the_fields_of_its_cpu() -> None:
    """Spaces and brackets in the name; the numbers behind it are found."""
    stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7"
    assert process_cost.parse_cpu_ticks(stat) == 300


def test_kilobytes_are_bytes_and_what_is_not_there_is_none() -> None:
    """VmRSS in status; no such line; a line that says something else."""
    assert process_cost.parse_kb("VmPeak:\t  9 kB\nVmRSS:\t  34000 kB\n", "VmRSS") == 34_816_000
    assert process_cost.parse_kb("VmPeak:\t  9 kB\n", "VmRSS") is None
    assert process_cost.parse_kb("VmRSS: many\n", "VmRSS") is None


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_this_process_has_memory_and_uses_the_cpu() -> None:
    """Against the real /proc: a peak is no less than what there is, a share no more."""
    found = process_cost.memory(os.getpid())
    assert 0 < found.rss_bytes <= found.peak_bytes
    assert found.pss_bytes is None or 0 < found.pss_bytes <= found.rss_bytes
    before = process_cost.cpu_s(os.getpid())
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert process_cost.cpu_s(os.getpid()) - before > 0.1


def test_the_measured_agent_is_asked_by_each_peer_once_a_second_on_each_rnic() -> None:
    """Eighty probes from ten hosts, ascending; the hosts are not in step with each other."""
    plan = schedule(10, 8)
    assert sorted((host, rail) for _, host, rail in plan) == [
        (host, rail) for host in range(10) for rail in range(8)
    ]
    offsets = [offset for offset, _, _ in plan]
    assert offsets == sorted(offsets)
    assert 0 <= offsets[0] < offsets[-1] < INTERVAL_NS
    assert len(set(offsets)) >= 10


def test_peers_count_what_they_answer_and_what_is_answered() -> None:
    """A probe of ours is answered by a peer; ours answer its probes; both sides are counted."""
    ours = UdpTransport(SystemClock(), LOOPBACK, 0)
    with Peers(2, 1) as peers:
        peers.probe([ours.port])
        ours.send(
            Probe(
                token=1,
                address=LOOPBACK,
                port=peers.port(0, 0),
                flow=0,
                entropy=0,
                timeout_ns=10**10,
            )
        )
        completions: list[Completion] = []
        end = time.monotonic() + 30
        while time.monotonic() < end and (not completions or not peers.traffic()[0].answered):
            completions += ours.poll()
            time.sleep(0.01)
        (traffic,) = peers.traffic()
    ours.close()
    assert [c.status.value for c in completions] == ["OK"]
    assert (traffic.probes, traffic.replies) == (1, 1)
    assert traffic.asked >= traffic.answered >= 1
    assert traffic.payload_bytes == 50 * traffic.packets


def test_the_slope_is_of_the_last_two_thirds() -> None:
    """What grows at the start and stands still then does not grow; what grows does."""
    times = [float(t) for t in range(30)]
    assert slope(times, [min(t, 8.0) for t in times]) == pytest.approx(0)
    assert slope(times, [3 * t + 1 for t in times]) == pytest.approx(3)
    with pytest.raises(ValueError, match="no slope"):
        slope([1.0], [1.0])


def test_a_short_soak_may_show_a_young_agents_growth_and_an_hour_50_kilobytes() -> None:
    """The bound in KB an hour, by how long was looked."""
    assert growth_bar_kb_h(3_600) == 50
    assert growth_bar_kb_h(60) == 3_072 * 60
