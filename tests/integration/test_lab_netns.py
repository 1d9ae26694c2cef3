"""The lab of network namespaces: what it is made of, what it says, what it leaves behind."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from localizer.config import build_config as localizer_config
from ops.demo.scoreboard import WATCHED
from ops.lab.events import EventLoop
from ops.lab.fault_kinds import NETNS_LAB
from ops.lab.faults import FaultError, check_fault
from ops.lab.folder import info, lab_path
from ops.lab.kind import SUITE_SHAPE as SHAPE
from ops.lab.kind import why_no_netns
from ops.lab.lab import Lab, LabConfig
from ops.lab.netns.commands import namespaces, run
from ops.lab.netns.network import NetnsNetwork
from ops.lab.netns.plan import AGENT_PORT, Plan, overlay_address, prefix_of, underlay_address
from ops.lab.netns.traffic import SCALE, Traffic
from ops.lab.shape import EndpointSpec
from ops.lab.suite.cases import SUITE
from ops.lab.suite.faults import FaultBench
from ops.lab.suite.record import record_suite
from ops.lab.suite.recorded import RECORDED
from ops.lab.workload import Workload
from ops.log.watch import Watch
from ops.recording.labelled import judge_folder
from ops.running.pipeline import Pipeline, PipelineConfig
from probers.clock import SystemClock
from probers.config.rnics import namespace_path
from probers.host.netns import inside, sysfs_folder
from probers.transports import sockets
from probers.transports.base import Completion, Probe
from probers.transports.tunnel import TunnelErrors
from probers.transports.udp import UdpTransport
from schemas.enums import ProbeStatus
from schemas.kafka.connection import STATE_ENV, KafkaSettings
from streams.config import DetectionConfig

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(why_no_netns() is not None, reason=str(why_no_netns())),
]
UP_TIMEOUT_S = 60.0
READY_TIMEOUT_S = 200.0
# One thread sends and answers: long for a machine that stalls, short for what is lost.
TIMEOUT_NS = 400 * 10**6
FLOWS = 8
# The kernel seeds its hashes anew for each namespace and boot: that all of these take one of two
# spines happens once in 2^31 times (of 8 it does once in 128).
MANY_FLOWS = 32


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a fresh state folder."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        monkeypatch.setenv(STATE_ENV, name)
        yield Path(name)


@dataclass
class Bare:
    """A network without agents: one transport in the first container, one in the last."""

    folder: Path
    network: NetnsNetwork
    loop: EventLoop
    near: UdpTransport
    far: UdpTransport
    faults: int = 0
    tokens: int = 0

    def fault(self, kind: str, target: str, **params: object) -> str:
        """Put a fault in, return its id."""
        self.faults += 1
        fault_id = f"f{self.faults}"
        self.network.inject(fault_id, check_fault(kind, target, params, SHAPE, NETNS_LAB))
        return fault_id

    @contextmanager
    def faulty(self, kind: str, target: str, **params: object) -> Iterator[None]:
        """Put a fault in, and heal it also when a test fails in between."""
        fault_id = self.fault(kind, target, **params)
        try:
            yield
        finally:
            self.network.heal(fault_id)

    def probe(
        self,
        *,
        ttl: int | None = None,
        flows: int = FLOWS,
        dst: EndpointSpec = SHAPE.endpoints[-SHAPE.rails],
    ) -> list[Completion]:
        """Probe from the first container to another on several 5-tuples, wait for all ends."""
        ended: list[Completion] = []
        for flow in range(flows):
            self.tokens += 1
            self.near.send(
                Probe(token=self.tokens, address=overlay_address(dst), port=AGENT_PORT,
                      flow=flow, entropy=0, timeout_ns=TIMEOUT_NS, ttl=ttl)
            )  # fmt: skip
        while len(ended) < flows:
            self.loop.run_once(2_000_000)
            select.select([self.near.fileno(), self.far.fileno()], [], [], 0.002)
            self.far.poll()
            ended += self.near.poll()
        return sorted(ended, key=lambda c: c.token)

    def answered(self, flows: int = FLOWS) -> int:
        """Return how many 5-tuples come through."""
        return sum(c.status is ProbeStatus.OK for c in self.probe(flows=flows))


def transport(plan: Plan, e: EndpointSpec, port: int = AGENT_PORT) -> UdpTransport:
    """Open what an agent opens for an endpoint of the lab."""
    container = namespace_path(plan.namespace(e.container_id))

    def opener(address: str, port: int) -> tuple[socket.socket, bool]:
        return inside(container, partial(sockets.open_udp, address, port))

    errors = inside(
        namespace_path(plan.namespace(e.host_id)), lambda: TunnelErrors(underlay_address(e))
    )
    return UdpTransport(
        SystemClock(), overlay_address(e), port, probe_bytes=1024,
        opener=opener, tunnel=errors,
    )  # fmt: skip


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    """Give the network; afterwards nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="skh-") as name:
        folder = Path(name)
        loop = EventLoop()
        network = NetnsNetwork(
            SHAPE, folder, loop, seed=1, write=lambda _truth: None, publish=lambda _hosts: None
        )
        try:
            plan = Plan(SHAPE, prefix_of(folder))
            near = transport(plan, SHAPE.endpoints[0])
            far = transport(plan, SHAPE.endpoints[-SHAPE.rails])
            try:
                yield Bare(folder, network, loop, near, far)
            finally:
                near.close()
                far.close()
        finally:
            network.close()
            loop.close()
        assert namespaces(folder) == []


def test_traces_through_the_tunnel_show_every_switch_on_both_ways(bare: Bare) -> None:
    """TTL by TTL: leaf, a spine, leaf, target; 5-tuples spread over both spines, each keeps its."""
    addresses = bare.network.addresses()
    at = {address: node for node, address in addresses.items()}

    def hops(ttl: int) -> list[str | None]:
        return [at.get(str(c.reporter)) for c in bare.probe(ttl=ttl, flows=MANY_FLOWS)]

    assert set(hops(1)) == {"leaf:p0-0"}
    spines = hops(2)
    assert set(spines) == {"spine:0", "spine:1"}
    assert set(hops(3)) == {"leaf:p1-0"}
    assert hops(2) == spines
    assert {c.status for c in bare.probe(ttl=4)} == {ProbeStatus.OK}


def test_each_rail_leaves_by_its_own_rnic(bare: Bare) -> None:
    """The first hop of a probe is the leaf of its rail, not that of the host's first route."""
    addresses = bare.network.addresses()
    at = {address: node for node, address in addresses.items()}
    plan = Plan(SHAPE, prefix_of(bare.folder))
    for rail in range(SHAPE.rails):
        src, dst = SHAPE.endpoints[rail], SHAPE.endpoints[rail - SHAPE.rails]
        prober = transport(plan, src, port=0)
        try:
            bare.near, near = prober, bare.near
            (first,) = bare.probe(ttl=1, flows=1, dst=dst)
        finally:
            bare.near = near
            prober.close()
        assert at.get(str(first.reporter)) == SHAPE.leaf_of(src.host, rail)


@pytest.mark.parametrize(
    ("kind", "target", "params"),
    [
        ("link-cut", "link:leaf:p0-0--rnic:h0/r0", {}),
        ("link-down", "link:leaf:p0-0--rnic:h0/r0", {}),
        ("link-mtu", "link:leaf:p0-0--rnic:h0/r0", {}),
        ("switch-off", "leaf:p0-0", {}),
        ("route-withdraw", "leaf:p1-0", {"dst": "job1-w3/r0"}),
        ("route-hole", "leaf:p1-0", {}),
        ("acl-drop", "leaf:p0-0", {"percent": 100.0}),
        ("flow-hole", "rnic:h0/r0", {"dst": "job1-w3/r0"}),
        ("flow-hole", "vsw:h3", {}),
        ("container-kill", "job1-w1", {}),
    ],
)
def test_faults_stop_what_crosses_them_and_healing_brings_it_back(
    bare: Bare, kind: str, target: str, params: dict[str, object]
) -> None:
    """Also twice: healing leaves everything as it was. Who does not cross it sees nothing."""
    assert bare.answered() == FLOWS
    for _ in range(2):
        with bare.faulty(kind, target, **params):
            assert bare.answered() == (FLOWS if kind == "container-kill" else 0)
        deadline = time.monotonic() + UP_TIMEOUT_S
        while bare.answered() < FLOWS:
            assert time.monotonic() < deadline


def test_a_part_of_the_fabric_hits_a_part_of_the_flows(bare: Bare) -> None:
    """A cut to one of two spines: what hashes there is lost, the rest is not."""
    with bare.faulty("link-cut", "link:leaf:p0-0--spine:0", sender="leaf:p0-0"):
        ways = bare.probe(ttl=2, flows=MANY_FLOWS)
        spine = bare.network.addresses()["spine:0"]
        assert 0 < bare.answered(MANY_FLOWS) < MANY_FLOWS
        assert spine not in {c.reporter for c in ways}


def test_delay_and_loss_of_a_port_are_what_was_asked_for(bare: Bare) -> None:
    """20 ms one way are seen in each round trip; 50 % of the frames do not come back."""
    link = "link:leaf:p0-0--rnic:h0/r0"
    with bare.faulty("link-delay", link, ms=20.0, sender="leaf:p0-0"):
        times = [c.times for c in bare.probe() if c.times is not None]
        assert times
        assert min(t.received_ns - t.sent_ns for t in times) >= 20 * 10**6
    with bare.faulty("link-loss", link, percent=50.0, sender="leaf:p0-0"):
        answered = sum(bare.answered() for _ in range(5))
    # 40 draws at 50 %: outside of 8 to 32 once in 10,000 runs.
    assert 8 <= answered <= 32


def test_healing_a_delay_loses_no_frame_that_waits(bare: Bare) -> None:
    """What was under way when the delay ended arrives when it is due."""
    link = "link:leaf:p0-0--rnic:h0/r0"
    fault_id = bare.fault("link-delay", link, ms=100.0, sender="rnic:h0/r0")
    bare.loop.call_later(30 * 10**6, lambda: _heal(bare, fault_id))
    assert bare.answered(MANY_FLOWS) == MANY_FLOWS
    assert fault_id not in bare.network.active


def _heal(bare: Bare, fault_id: str) -> None:
    bare.network.heal(fault_id)


def test_a_slow_port_lets_packets_wait_behind_cross_traffic_until_it_is_healed(bare: Bare) -> None:
    """Twice the port's rate keeps its queue full: a packet waits long, or is dropped."""
    link = "link:leaf:p0-0--rnic:h0/r0"
    slow = {"mbit": 5.0, "ms": 50.0, "cross": 200.0, "sender": "leaf:p0-0"}
    with bare.faulty("link-rate", link, **slow):
        _let(bare, 0.5)
        ended = bare.probe(flows=MANY_FLOWS)
        waits_ns = [c.times.received_ns - c.times.sent_ns for c in ended if c.times is not None]
        lost = sum(c.status is not ProbeStatus.OK for c in ended)
        assert lost or max(waits_ns) >= 20 * 10**6
    assert bare.answered() == FLOWS
    waits_ns = [c.times.received_ns - c.times.sent_ns for c in bare.probe() if c.times is not None]
    # The queue that was kept full made every packet wait for 50 ms.
    assert min(waits_ns) < 40 * 10**6


def test_a_burst_through_a_port_with_room_loses_nothing(bare: Bare) -> None:
    """Its frames arrive at the other end, at about their rate, and stop there."""
    plan = Plan(SHAPE, prefix_of(bare.folder))
    statistics = sysfs_folder(
        namespace_path(plan.namespace("host:h0")), Path("/sys/class/net/r0/statistics")
    )

    def received() -> int:
        return int((statistics / "rx_bytes").read_text())

    with bare.faulty("cross-traffic", "link:leaf:p0-0--rnic:h0/r0", mbit=20.0):
        before, began_s = received(), time.monotonic()
        _let(bare, 0.5)
        assert bare.answered() == FLOWS
        rate_mbit = (received() - before) * 8 / 1e6 / (time.monotonic() - began_s)
    # A machine that stands still makes less of it, none makes much more.
    assert 2.0 < rate_mbit < 30.0
    after = received()
    _let(bare, 0.2)
    assert received() - after < 10_000


def test_a_queue_that_the_kernel_lacks_is_refused_and_leaves_none_behind(bare: Bare) -> None:
    """The message says so; where the kernel has fq_codel the fault is put in and healed."""
    link = "link:leaf:p0-0--spine:0"
    try:
        with bare.faulty("link-rate-fair", link, mbit=100.0):
            assert bare.answered() == FLOWS
    except FaultError as error:
        assert "this kernel lacks" in str(error)  # noqa: PT017 - either way is right
    plan = Plan(SHAPE, prefix_of(bare.folder))
    assert "tbf" not in run("tc", "-n", plan.namespace("leaf:p0-0"), "qdisc", "show")


def _let(bare: Bare, seconds: float) -> None:
    """Let the fabric's loop run for so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        bare.loop.run_once(5 * 10**6)


def test_a_second_fault_of_a_namespace_outlives_the_healing_of_the_first(bare: Bare) -> None:
    """Healing sets the namespace anew, and then what is still broken again."""
    with bare.faulty("route-hole", "leaf:p0-0", dst="job1-w3/r0"):
        with bare.faulty("route-withdraw", "leaf:p0-0", dst="job1-w1/r0"):
            pass
        assert bare.answered() == 0
    assert bare.answered() == FLOWS


def test_a_change_by_somebody_else_is_published(state: Path) -> None:
    """An FDB entry removed by hand is in the next table, without any fault of the lab's."""
    folder = state / "lab"
    published: list[set[int]] = []
    loop = EventLoop()
    network = NetnsNetwork(
        SHAPE, folder, loop, seed=1, write=lambda _truth: None, publish=published.append
    )
    try:
        before = network.table(1, cluster="c", captured_at=1)
        plan = Plan(SHAPE, prefix_of(folder))
        mine = next(e for e in SHAPE.endpoints if e.host == 1)
        entry = plan.entries(mine, SHAPE.endpoints[0])[mine.rnic_id]
        run("bridge", "-n", plan.namespace("host:h1"), "fdb", "del", *entry.split())
        deadline = time.monotonic() + UP_TIMEOUT_S
        while not published and time.monotonic() < deadline:
            loop.run_once(10**8)
        (gone,) = set(before.entries) - set(network.table(1, cluster="c", captured_at=2).entries)
        assert published[0] == {1}
        assert (gone.node, gone.dst) == ("rnic:h1/r0", "job1-w0/r0")
    finally:
        network.close()
        loop.close()


def test_the_job_moves_the_counters_of_its_own_rnics(bare: Bare) -> None:
    """Each RNIC has sent what the job says, give or take ARP and headers, none for another."""
    plan = Plan(SHAPE, prefix_of(bare.folder))
    folders = [
        sysfs_folder(
            namespace_path(plan.namespace(e.host_id)), Path(f"/sys/class/net/r{e.rail}/statistics")
        )
        for e in SHAPE.endpoints
    ]

    def sent() -> list[int]:
        return [int((folder / "tx_bytes").read_text()) for folder in folders]

    before = sent()
    workload = Workload(shape=SHAPE, period_ns=500_000_000)
    begin_ns = time.monotonic_ns()
    traffic = Traffic(plan, workload, bare.loop)
    traffic.start()
    deadline = time.monotonic() + 1.2
    while time.monotonic() < deadline:
        bare.loop.run_once(10**7)
    traffic.close()
    least = workload.totals(10**9)
    # A machine that stood still lets it send for longer.
    most = workload.totals(time.monotonic_ns() - begin_ns + 100_000_000)
    for e, was, now in zip(SHAPE.endpoints, before, sent(), strict=True):
        moved = now - was
        assert least[e.endpoint_id][0] / SCALE * 0.95 <= moved
        # Headers of 1,400 bytes are some 7 %.
        assert moved <= most[e.endpoint_id][0] / SCALE * 1.1 + 10_000


@pytest.mark.broker
def test_a_lab_that_was_killed_is_cleaned_up_by_the_next(kafka: KafkaSettings, state: Path) -> None:
    """SIGKILL of the lab and of its fabric leaves namespaces; `down` removes them."""
    command = [sys.executable, "-c", "from ops.cli.app import main; main()", "lab"]
    flags = ["--kind", "netns", "--rails", "1", "--leaves", "1", "--no-agents"]
    broker = ["--bootstrap", kafka.bootstrap, "--prefix", kafka.topic_prefix]
    path = lab_path("default")
    up = subprocess.Popen(
        [*command, "up", *flags, *broker], env={**os.environ, STATE_ENV: str(state)},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(lambda: info(path).get("state") == "up")
        assert len(namespaces(path)) == 4 * 2 + 2 + 2
        pids = (path / "pids.json").read_text()
        up.kill()
        for pid in [int(p) for p in pids.strip("[]").split(",")]:
            os.kill(pid, signal.SIGKILL)
    finally:
        up.kill()
        up.wait()
    assert namespaces(path)
    subprocess.run([*command, "down"], env={**os.environ, STATE_ENV: str(state)}, check=True)
    assert namespaces(path) == []
    with Lab(LabConfig(settings=kafka, kind=NETNS_LAB, shape=SHAPE, agents=False)):
        assert namespaces(path)
    assert namespaces(path) == []


def _wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + UP_TIMEOUT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.broker
@pytest.mark.lab
def test_verdicts_name_the_link_and_the_tunnel(state: Path, tmp_path: Path) -> None:
    """A port that is shut is the link's; an FDB entry that is gone is the overlay's."""
    wanted = [case for case in SUITE if case.name in ("port shut", "tunnel entry gone")]
    with (
        Pipeline(PipelineConfig(folder=tmp_path)) as pipeline,
        Lab(LabConfig(settings=pipeline.settings, kind=NETNS_LAB, shape=SHAPE)) as lab,
        Watch(pipeline.settings, WATCHED, from_start=True) as watch,
    ):
        # A worker with a busy machine under it once took more than 90 s.
        pipeline.wait_ready(READY_TIMEOUT_S)

        def check() -> None:
            lab.check()
            pipeline.group.check()

        bench = FaultBench(lab, watch, check)
        outcomes = [bench.run(case) for case in wanted]
        folder = lab.path
    assert all(outcome.right and outcome.kind_right for outcome in outcomes), outcomes
    assert namespaces(folder) == []
    assert state.exists()


@pytest.mark.broker
@pytest.mark.lab
def test_recorded_faults_are_labelled_and_judged(state: Path, tmp_path: Path) -> None:
    """A cut cable is found in the recording; what the kernel cannot do is left out and told."""
    cut = next(case for case in RECORDED["hard"] if case.name == "link cut")
    burst = next(case for case in RECORDED["confounders"] if case.kind == "cross-traffic")
    fair = next(case for case in RECORDED["queues"] if case.kind == "link-rate-fair")
    cases = [replace(case, timeout_s=5.0) for case in (cut, burst, fair)]
    record_suite(
        NETNS_LAB, tmp_path, say=lambda _: None, recorded={"few": cases}, health_s=15.0,
        rest_s=5.0, tail_s=5.0,
    )  # fmt: skip
    (one,) = judge_folder(tmp_path, DetectionConfig(), localizer_config({}, {}), lambda _: None)
    assert [label.name for label in one.labels.faults][:1] == ["link cut"]
    assert len(one.labels.faults) + len(one.labels.left_out) == 2
    assert [label.name for label in one.labels.confounders] == [burst.name]
    found = {fault.fault_id: verdict.candidates[0] for fault, verdict in one.matching.pairs}
    assert found["link cut"] == cut.component_ids[0]
    assert state.exists()
