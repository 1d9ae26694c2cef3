"""Flags before environment before TOML, and all that is wrong told at once."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from probers.config.rnics import RdmaSettings, RnicConfig
from probers.config.settings import OPTIONS, AgentConfig, build_config
from schemas.enums import Transport as TransportKind
from schemas.process.settings import ConfigError

MINIMAL = {"host_id": "h0", "rnic": [{"rail": 0, "address": "10.0.0.1"}]}
FULL = """
[agent]
id = "agent-h0"
host_id = "h0"
container_id = "job1-w0"
task_id = "job1"
interval_ms = 2000
timeout_ms = 250
counters_hz = 20
log_level = "DEBUG"
log_json = true

[[agent.rnic]]
rail = 0
address = "127.0.0.1"
port = 4001
gateway = "127.0.0.1:9000"
counters = "/sys/class/infiniband/mlx5_0/ports/1/counters"

[[agent.rnic]]
rail = 1
address = "127.0.0.1"
port = 4002
endpoint_id = "other/r1"
transport = "tcp"
"""


def build(
    table: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> AgentConfig:
    """Build from these sources."""
    return build_config(flags or {}, environment or {}, MINIMAL if table is None else table)


def test_a_whole_file_is_read() -> None:
    """Times become nanoseconds; RNICs get their default ids."""
    config = build(tomllib.loads(FULL)["agent"])
    assert (config.id, config.host_id, config.container_id) == ("agent-h0", "h0", "job1-w0")
    assert (config.interval_ns, config.timeout_ns) == (2 * 10**9, 250 * 10**6)
    assert config.counters_tick_ns == 50 * 10**6
    assert config.rnics == (
        RnicConfig(
            rail=0,
            endpoint_id="job1-w0/r0",
            address="127.0.0.1",
            port=4001,
            gateway=("127.0.0.1", 9000),
            counters=Path("/sys/class/infiniband/mlx5_0/ports/1/counters"),
        ),
        RnicConfig(
            rail=1,
            endpoint_id="other/r1",
            address="127.0.0.1",
            port=4002,
            transport=TransportKind.TCP,
        ),
    )


def test_ids_default_to_the_host() -> None:
    """Agent and container are named after the host; the task may be none."""
    config = build()
    assert (config.id, config.container_id, config.task_id) == ("agent-h0", "h0", None)
    assert config.rnics[0].endpoint_id == "h0/r0"


def test_flags_win_over_environment_over_file() -> None:
    """Each source replaces the next one, setting by setting."""
    table = {**MINIMAL, "flows": 1, "confirm": 1, "timeout_ms": 100}
    environment = {"SKELETONHUNTER_AGENT_FLOWS": "2", "SKELETONHUNTER_AGENT_CONFIRM": "2"}
    config = build(table, {"flows": "3", "confirm": None}, environment)
    assert (config.flows, config.confirm, config.timeout_ns) == (3, 2, 100 * 10**6)


def test_rnics_come_from_flags_or_environment_as_well() -> None:
    """`rail=…,address=…`, several flags, or parted by semicolons."""
    flags = {"rnic": ["rail=0,address=10.0.0.1", "rail=1,address=10.0.0.2,port=7"]}
    assert [r.port for r in build({}, flags).rnics] == [0, 7]
    environment = {"SKELETONHUNTER_AGENT_RNIC": "rail=4,address=10.0.0.4; rail=5,address=10.0.0.5"}
    assert [r.rail for r in build({}, None, environment).rnics] == [4, 5]


def test_no_counters_are_sampled_at_rate_zero() -> None:
    """0 means off."""
    assert build({**MINIMAL, "counters_hz": 0}).counters_tick_ns is None


def test_everything_wrong_is_told_at_once() -> None:
    """One error names each setting, its value and its bounds."""
    table = {
        "id": "a b",
        "interval_ms": 5,
        "timeout_ms": "soon",
        "flows": True,
        "speed": 3,
        "rnic": [
            {"rail": -1, "address": "nowhere", "port": 70_000, "colour": "red"},
            {"rail": 1},
            {"rail": 2, "address": "10.0.0.1", "gateway": "x"},
        ],
    }
    with pytest.raises(ConfigError) as caught:
        build(table)
    message = str(caught.value)
    for part in (
        "id 'a b'",
        "interval_ms=5: a whole number from 100 to 60000",
        "timeout_ms='soon': a whole number from 10 to 30000",
        "flows=True",
        "speed",
        "rail=-1",
        "'nowhere'",
        "port=70000",
        "[agent.rnic] colour: no such setting",
        "rail is needed, and address",
        "gateway",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("rnics", "reason"),
    [
        ([], "give 1 to 64"),
        ([{"rail": 0, "address": "10.0.0.1"}] * 2, "same endpoint_id"),
        (
            [
                {"rail": 0, "address": "10.0.0.1", "port": 5},
                {"rail": 1, "address": "10.0.0.1", "port": 5},
            ],
            "same address and port",
        ),
        ([{"rail": 0, "address": ".".join("0000")}], "others must reach it"),
        ([{"rail": 0, "address": "fe80::1"}], "link-local"),
        ([{"rail": 0, "address": "fe80::1%eth0"}], "names an interface"),
        ([{"rail": 0, "address": "::ffff:10.0.0.1"}], "write it as 10.0.0.1"),
        ([{"rail": 0, "address": "fd00::1", "gateway": "127.0.0.1:1"}], "IPv4 only"),
        (
            [
                {"rail": 0, "address": "fd00::1", "port": 5},
                {"rail": 1, "address": "FD00:0::1", "port": 5},
            ],
            "same address and port",
        ),
        ([{"rail": 0, "address": "10.0.0.1", "transport": "sctp"}], "udp, tcp, rdma"),
        ([{"rail": 0, "address": "10.0.0.1", "transport": "rdma"}], "name of an RDMA device"),
        ([{"rail": 0, "address": "10.0.0.1", "device": "mlx5_0"}], "is for transport"),
        (
            [{"rail": 0, "address": "10.0.0.1", "transport": "tcp", "gateway": "127.0.0.1:1"}],
            "only udp",
        ),
        (
            [{"rail": 0, "address": "10.0.0.1", "transport": "tcp", "netns": "job1-w0"}],
            "for udp without gateway",
        ),
        ([{"rail": 0, "address": "10.0.0.1", "tunnel_address": "here"}], "'here' must be"),
        ([{"rail": 0}], "rail is needed, and address, or the interface or RDMA device"),
        ([{"rail": 0, "interface": "eth0", "address": "10.0.0.1"}], "does not go with address"),
        ([{"rail": 0, "interface": "../eth0"}], "is no name of a network interface"),
        (
            [{"rail": rail, "transport": "rdma", "device": "mlx5_0"} for rail in (0, 1)],
            "same device or interface",
        ),
        ("none", r"\[\[agent.rnic\]\]"),
    ],
)
def test_rnics_that_cannot_be_are_refused(rnics: Any, reason: str) -> None:
    """None, twice the same, unreachable, unknown transport."""
    with pytest.raises(ConfigError, match=reason):
        build({"host_id": "h0", "rnic": rnics})


def test_an_rdma_rnic_has_its_ports_folder_and_its_settings() -> None:
    """The device's name is enough; what is not said has the usual value."""
    table = {"rail": 3, "address": "10.0.0.1", "transport": "rdma", "device": "mlx5_3"}
    (rnic,) = build({"host_id": "h0", "rnic": [table]}).rnics
    assert rnic.transport is TransportKind.RDMA_UD
    assert rnic.rdma == RdmaSettings(device="mlx5_3", address="10.0.0.1")
    assert str(rnic.counters) == "/sys/class/infiniband/mlx5_3/ports/1"
    assert not rnic.fallback
    more = {"gid_index": 3, "device_port": 2, "traffic_class": 106, "service_level": 3}
    (rnic,) = build({"host_id": "h0", "rnic": [{**table, **more, "fallback": "udp"}]}).rnics
    assert rnic.rdma == RdmaSettings(
        device="mlx5_3", address="10.0.0.1", port=2, gid_index=3, traffic_class=106,
        service_level=3,
    )  # fmt: skip
    assert rnic.fallback


def test_one_file_names_devices_or_interfaces_for_all_hosts() -> None:
    """Addresses, which differ from host to host, are left out; counters are the device's."""
    rnics = [
        *({"rail": n, "transport": "rdma", "device": f"mlx5_{n}", "port": 7} for n in range(2)),
        {"rail": 2, "interface": "eth0", "port": 7},
        {"rail": 3, "interface": "eth1", "port": 7},
    ]
    found = build({"host_id": "h0", "rnic": rnics}).rnics
    assert [rnic.address for rnic in found] == [None] * 4
    assert [rnic.rdma and rnic.rdma.device for rnic in found] == ["mlx5_0", "mlx5_1", None, None]
    assert str(found[2].counters) == "/sys/class/net/eth0/statistics"


def test_namespaces_are_given_by_name_or_path() -> None:
    """Addresses may then repeat; a name is one of `ip netns`."""
    common = {"address": "10.0.0.1", "port": 5, "tunnel_address": "10.64.0.1"}
    rnics = [
        {"rail": 0, "netns": "job1-w0", "host_netns": "/proc/1/ns/net", **common},
        {"rail": 1, "netns": "job1-w1", **common},
    ]
    first, second = build({"host_id": "h0", "rnic": rnics}).rnics
    assert (str(first.netns), str(first.host_netns)) == ("/run/netns/job1-w0", "/proc/1/ns/net")
    assert (second.host_netns, second.tunnel_address) == (None, "10.64.0.1")


def test_a_broken_rnic_flag_is_named() -> None:
    """The part that is no key=value."""
    with pytest.raises(ConfigError, match="'nonsense' is no key=value"):
        build({}, {"rnic": ["rail=0,nonsense"]})


def test_every_option_has_bounds_that_hold_its_default() -> None:
    """No default is refused by its own check."""
    for option in OPTIONS:
        if option.kind is int:
            assert isinstance(option.default, int)
            assert option.low <= option.default <= option.high
