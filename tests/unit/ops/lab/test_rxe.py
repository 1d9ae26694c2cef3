"""The plan of a lab of Soft-RoCE RNICs, what is said to its machine, and what it refuses."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.errors import LabError
from ops.lab.events import EventLoop
from ops.lab.fault_kinds import KINDS, RXE_LAB
from ops.lab.faults import FaultError, check_fault, targets_of
from ops.lab.impairment import Effect
from ops.lab.kind import lab_kind
from ops.lab.netns import breaking
from ops.lab.netns.kernel import SHAPED
from ops.lab.netns.plan import underlay_address
from ops.lab.rxe import kind as rxe
from ops.lab.rxe.guest import Guest
from ops.lab.rxe.network import RxeNetwork
from ops.lab.rxe.plan import HOSTS, RxePlan, device, netdev, netem, other_address
from ops.lab.rxe.wire import MAX_LINE_BYTES, LineError, Lines, encode
from ops.lab.shape import LabShape, ShapeError
from ops.lab.suite.cases import SUITE
from ops.lab.topology import Topology
from ops.lab.vm.machine import MachineError
from schemas.enums import ComponentKind, Layer
from schemas.kafka.connection import settings_from_table

SHAPE = rxe.SHAPE
PLAN = RxePlan(SHAPE)
OWN = SHAPED | {"switch-off", "gid-change", "qkey-stale"}
KERNEL_FAULTS = [
    kind.name
    for kind in KINDS.values()
    if RXE_LAB in kind.labs and kind.layer is not Layer.HOST and kind.name not in OWN
]


def test_names_and_addresses_are_unique_in_the_largest_lab() -> None:
    """All RNICs share a namespace: device, RDMA device, address and spare address are one's own."""
    shape = LabShape(hosts=16, rails=1, pods=4, leaves=1, spines=2)
    rxe.checked_shape(shape)
    plan = RxePlan(shape)
    for of in (netdev, device, underlay_address, other_address):
        assert len({of(e) for e in shape.endpoints}) == len(shape.endpoints)
    devices = [(plan.namespace(a), name) for (a, _), name in plan.ports.items()]
    assert len(set(devices)) == len(devices) == 2 * len(shape.links)
    assert set(plan.addresses()) == {*shape.switch_ids(), *shape.rnic_ids()}


def test_each_rnic_sends_by_its_own_table_and_local_addresses_are_asked_last() -> None:
    """Otherwise the kernel would hand over to a neighbour what is to cross the switches."""
    rules = PLAN.devices(HOSTS)
    for number, e in enumerate(SHAPE.endpoints):
        table = str(1_000 + number)
        assert f"rule add pref 10 from {underlay_address(e)} lookup {table}" in rules
        (route,) = [c for c in PLAN.state(HOSTS) if c.endswith(f"table {table}")]
        assert f"dev {netdev(e)} " in route
    assert rules[-2:] == ["rule add pref 100 lookup local", "rule del pref 0"]


def test_rnics_are_in_the_first_namespace_and_switches_in_their_own() -> None:
    """What breaks an RNIC runs where its device is."""
    assert {PLAN.namespace(e.rnic_id) for e in SHAPE.endpoints} == {HOSTS}
    assert PLAN.namespace("leaf:p1-0") == "leaf-p1-0"
    assert PLAN.nodes == (HOSTS, *SHAPE.switch_ids())


@pytest.mark.parametrize("name", KERNEL_FAULTS)
def test_every_kernel_fault_has_commands_where_healing_restores(name: str) -> None:
    """For every target; nothing of an overlay is touched."""
    for target in targets_of(KINDS[name], SHAPE):
        spec = check_fault(name, target, {}, SHAPE, RXE_LAB)
        step = breaking.step(PLAN, spec)
        assert step.commands
        assert step.namespace in {PLAN.namespace(n) for n in breaking.nodes(PLAN, spec)}
        assert breaking.hosts(PLAN, spec) == set()


@pytest.mark.parametrize(
    ("effect", "options"),
    [
        (Effect(cut=True, loss=0.1), "loss 100%"),
        (Effect(corrupt=0.2, delay_ns=20_000_000), "corrupt 20% delay 20000us"),
        (Effect(delay_ns=1_000_000, jitter_ns=4_000_000), "delay 3000us 2000us"),
        (Effect(), ""),
    ],
)
def test_what_frames_suffer_is_told_to_netem(effect: Effect, options: str) -> None:
    """A cut is all of them; jitter, told as the most, is spread around its middle."""
    assert netem(effect) == options


messages = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=30), max_size=4)


@given(st.lists(messages, max_size=5), st.integers(min_value=1, max_value=50))
def test_lines_come_whole_however_they_are_cut(sent: list[dict[str, object]], size: int) -> None:
    """A serial port hands over what it has."""
    data = b"".join(encode(message) for message in sent)
    lines = Lines()
    got: list[dict[str, object]] = []
    for at in range(0, len(data), size):
        got += lines.feed(data[at : at + size])
    assert got == sent


@pytest.mark.parametrize(
    "data", [b"[1]\n", b"boot noise\n", b"\xff\n", b"x" * (MAX_LINE_BYTES + 1)]
)
def test_what_is_no_line_is_refused(data: bytes) -> None:
    """It never grows without bound, and never passes for a message."""
    with pytest.raises(LineError):
        list(Lines().feed(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    """Nothing but a LineError comes of them."""
    try:
        found = list(Lines().feed(data))
    except LineError:
        return
    assert all(isinstance(message, dict) for message in found)


def test_the_guest_tells_what_failed_and_goes_on(tmp_path: os.PathLike[str]) -> None:
    """An unknown operation, a wrong argument and a failing command are answers, not its end."""
    guest = Guest(tmp_path, ())  # type: ignore[arg-type]
    assert "error" in guest.answer({"number": 1, "op": "dance"})
    assert "error" in guest.answer({"number": 2, "op": "signal", "with": {"name": "x"}})
    answer = guest.answer({"number": 3, "op": "states"})
    assert answer == {"number": 3, "result": {}}
    json.dumps(answer)


def test_the_topology_has_one_way_between_any_two_and_no_overlay() -> None:
    """Paths without traces are known only then."""
    records = Topology(SHAPE, cluster="c", addresses=PLAN.addresses(), overlay=False).components(1)
    kinds = [record.kind for record in records]
    assert ComponentKind.VSWITCH not in kinds
    assert kinds.count(ComponentKind.SWITCH) == SHAPE.pods + 1
    assert len(SHAPE.spine_ids()) == 1


def test_too_many_rnics_are_refused_before_anything_starts() -> None:
    """The message says why."""
    with pytest.raises(ShapeError, match="one emulated processor"):
        lab_kind(RXE_LAB).ports(LabShape(hosts=8, rails=4))


def test_a_broker_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents in the machine reach this host's loopback only."""
    monkeypatch.setattr(rxe, "broker_addresses", lambda _settings: [("10.1.2.3", 9092)])
    with pytest.raises(LabError, match=r"10\.1\.2\.3:9092"):
        rxe.forwarded_ports(settings_from_table("127.0.0.1:9092", {}))


def test_ports_of_brokers_and_registry_are_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of brokers that only the cluster names."""
    monkeypatch.setattr(rxe, "broker_addresses", lambda _settings: [("localhost", 9093)])
    table = {"schema.registry.url": "http://127.0.0.1:8081/apis"}
    settings = settings_from_table("127.0.0.1:9092", table)
    assert rxe.forwarded_ports(settings) == (8081, 9092, 9093)


def test_the_suite_has_ten_faults_of_verbs_that_can_be_asked_for() -> None:
    """In the shape that the suite uses; right answers are among those of the truth."""
    mine = [case for case in SUITE if case.in_lab(RXE_LAB)]
    assert len(mine) >= 10
    for case in mine:
        spec = check_fault(case.kind, case.target, case.params, SHAPE, RXE_LAB)
        assert spec.layer is case.layer, case.name
        assert set(case.component_ids) & set(spec.component_ids), case.name


class PlayedMachine:
    """Keeps addresses and ports as the guest's kernel would, and refuses what that would.

    With `late`, what it is asked is done, but its answer comes too late.
    """

    def __init__(self, _folder: Path) -> None:
        self.addresses: set[tuple[str, str]] = set()
        self.down: set[str] = set()
        self.running = False
        self.late = False

    def set_clock(self) -> int:
        """Say that the clock is right."""
        return 0

    def close(self) -> None:
        """Nothing runs."""

    def ask(self, op: str, **arguments: Any) -> None:
        """Do what concerns addresses and ports."""
        for command in arguments.get("commands", ()) if op == "batch" else ():
            self._run(command.split())
        if self.late:
            raise MachineError("the machine does not answer")

    def _run(self, words: list[str]) -> None:
        match words:
            case ["addr", "replace", address, "dev", device]:
                self.addresses.add((device, address))
            case ["addr", "add", address, "dev", device]:
                if (device, address) in self.addresses:
                    raise MachineError("RTNETLINK answers: File exists")
                self.addresses.add((device, address))
            case ["addr", "del", address, "dev", device]:
                if (device, address) not in self.addresses:
                    raise MachineError("RTNETLINK answers: Cannot assign requested address")
                self.addresses.remove((device, address))
            case ["link", "set", device, "down"]:
                self.down.add(device)
            case ["link", "set", device, *_, "up"]:
                self.down.discard(device)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RxeNetwork]:
    """Return a network whose machine is played."""
    monkeypatch.setattr("ops.lab.rxe.network.Machine", PlayedMachine)
    loop = EventLoop()
    made = RxeNetwork(SHAPE, tmp_path, loop, ports=(), write=lambda _: None, publish=lambda _: None)
    yield made
    made.close()
    loop.close()


def _put(network: RxeNetwork, fault_id: str, kind: str, target: str, **params: str) -> None:
    network.inject(fault_id, check_fault(kind, target, params, SHAPE, RXE_LAB))


def _addresses(network: RxeNetwork, rnic_id: str) -> set[str]:
    e = next(e for e in SHAPE.endpoints if e.rnic_id == rnic_id)
    machine = network._machine
    assert isinstance(machine, PlayedMachine)
    return {address for device, address in machine.addresses if device == netdev(e)}


@pytest.mark.parametrize("first", ["gid", "port"])
def test_a_changed_gid_and_a_shut_port_are_healed_one_by_one(
    network: RxeNetwork, first: str
) -> None:
    """Both are in one namespace: healing one sets all of it as in health, the other stays."""
    e, other = SHAPE.endpoints[4], SHAPE.endpoints[2]
    cable = next(x.link_id for x in SHAPE.links if other.rnic_id in (x.a, x.b))
    machine = network._machine
    assert isinstance(machine, PlayedMachine)
    health = set(machine.addresses)
    _put(network, "gid", "gid-change", e.rnic_id)
    _put(network, "port", "link-down", cable, sender=other.rnic_id)

    network.heal(first)
    changed, shut = first == "port", first == "gid"
    wanted = other_address(e) if changed else underlay_address(e)
    assert _addresses(network, e.rnic_id) == {f"{wanted}/32"}
    assert (netdev(other) in machine.down) is shut

    network.heal("port" if first == "gid" else "gid")
    assert machine.addresses == health
    assert not machine.down


def test_a_gid_that_is_changed_already_is_not_changed_again(network: RxeNetwork) -> None:
    """It says so, and what is in force can be healed."""
    rnic_id = SHAPE.endpoints[0].rnic_id
    _put(network, "f1", "gid-change", rnic_id)
    with pytest.raises(FaultError, match="heal it first"):
        _put(network, "f2", "gid-change", rnic_id)
    network.heal("f1")
    assert _addresses(network, rnic_id) == {f"{underlay_address(SHAPE.endpoints[0])}/32"}


def test_a_fault_whose_healing_failed_can_be_healed_again(network: RxeNetwork) -> None:
    """A machine that did not answer in time keeps no fault in force for good."""
    rnic_id = SHAPE.endpoints[0].rnic_id
    _put(network, "f1", "gid-change", rnic_id)
    machine = network._machine
    assert isinstance(machine, PlayedMachine)
    machine.late = True
    with pytest.raises(MachineError):
        network.heal("f1")
    machine.late = False
    network.heal("f1")
    assert _addresses(network, rnic_id) == {f"{underlay_address(SHAPE.endpoints[0])}/32"}
    assert not network.active
