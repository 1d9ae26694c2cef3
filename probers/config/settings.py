"""The agent's settings: what is plain stands in `OPTIONS`, RNICs and overlay are tables."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from probers.config.checks import checked_id, pages_of
from probers.config.health import HealthAddress, parse_health
from probers.config.keys import read_keys
from probers.config.overlay import OverlayConfig, checked_overlay
from probers.config.rnics import RnicConfig, checked_rnics, rnic_tables
from probers.packet import MAX_PACKET_BYTES, MIN_PACKET_BYTES
from schemas.process.settings import ConfigError, Setting, read_values
from schemas.units import MS_NS

SECTION: Final = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """All settings of an agent, checked."""

    id: str
    host_id: str
    container_id: str
    task_id: str | None
    interval_ns: int
    timeout_ns: int
    spread_ns: int
    confirm: int
    flows: int
    max_rate_hz: int
    probe_bytes: int
    heartbeat_ns: int
    counters_tick_ns: int | None
    # Distance of two looks at one RNIC; 0: no states are told.
    states_ns: int
    sysfs: str
    procfs: str
    # Least number by size in kB; None: the host's hugepages are not judged.
    hugepages: Mapping[int, int] | None
    vswitch_id: str | None
    trace_refresh_ns: int
    queue_bytes: int
    linger_ns: int
    rnics: tuple[RnicConfig, ...]
    # Kept out of what a log might print.
    probe_keys: tuple[bytes, ...] = field(default=(), repr=False)
    overlay: OverlayConfig | None = None
    # Where the agent may be asked how it is; None: nowhere.
    health: HealthAddress | None = None


OPTIONS: Final[tuple[Setting, ...]] = (
    Setting("id", str, None, "name of this agent; default agent-<host id>"),
    Setting("host_id", str, None, "name of the host; default its host name"),
    Setting("container_id", str, None, "name of the container; default the host's"),
    Setting("task_id", str, None, "training job that the container belongs to; default none"),
    Setting("interval_ms", int, 1_000, "distance of two probing rounds", 100, 60_000),
    Setting("timeout_ms", int, 500, "a probe without a reply for so long is lost", 10, 30_000),
    Setting("spread_ms", int, 300, "a round's probes are spread over so long", 0, 60_000),
    Setting("confirm", int, 2, "how often a lost probe is sent again at once", 0, 10),
    Setting("flows", int, 4, "5-tuples probed per pair at most", 1, 64),
    Setting(
        "max_rate_hz",
        int,
        2_000,
        "packets sent per second at most: probes, their repetitions, traces",
        1,
        20_000,
    ),
    Setting(
        "probe_bytes",
        int,
        MIN_PACKET_BYTES,
        "size of a probe and of its reply",
        MIN_PACKET_BYTES,
        MAX_PACKET_BYTES,
    ),
    Setting("probe_key_file", str, None, "file with the key that seals probes; default none"),
    Setting("heartbeat_ms", int, 1_000, "distance of two heartbeats", 100, 60_000),
    Setting("counters_hz", int, 10, "samples of the RNIC counters per second; 0: none", 0, 100),
    Setting(
        "states_s",
        int,
        5,
        "distance of two looks at an RNIC's and the host's state; 0: none",
        0,
        60,
    ),
    Setting("sysfs", str, "/sys", "where the host's sysfs is mounted"),
    Setting("procfs", str, "/proc", "where the host's procfs is mounted"),
    Setting(
        "hugepages",
        str,
        None,
        "what the host should have at least, e.g. 2048kB=1024; default not judged",
    ),
    Setting("vswitch_id", str, None, "component of the host's virtual switch; default vsw:<host>"),
    Setting("trace_refresh_s", int, 300, "distance of two traces of a healthy path", 10, 86_400),
    Setting("queue_kbytes", int, 768, "what waits, packed, while the broker is away", 64, 65_536),
    Setting("health", str, None, "unix:/PATH or 127.0.0.1:PORT to be asked at; default nowhere"),
    Setting("linger_ms", int, 700, "how long probes are answered after saying goodbye", 0, 30_000),
)


def build_config(
    flags: Mapping[str, Any], environment: Mapping[str, str], table: Mapping[str, Any]
) -> AgentConfig:
    """Check the settings and return them.

    Parameters
    ----------
    flags : by option name; None or absent: not given. `rnic`: list of `parse_rnic_flag` texts
    environment : as `os.environ`; `SKELETONHUNTER_AGENT_RNIC` takes several, parted by `;`
    table : the `[agent]` table of a TOML file

    Raises
    ------
    ConfigError
        If anything is wrong; the message names everything that is.
    """
    wrong: list[str] = []
    values = {o.name: o.default for o in OPTIONS} | read_values(
        OPTIONS,
        SECTION,
        flags=flags,
        environment=environment,
        table=table,
        wrong=wrong,
        more_keys=("rnic", "overlay"),
    )
    host_id = checked_id("host_id", values["host_id"] or socket.gethostname() or "host", wrong)
    container_id = checked_id("container_id", values["container_id"] or host_id, wrong)
    agent_id = checked_id("id", values["id"] or f"agent-{host_id}", wrong)
    task_id = values["task_id"] and checked_id("task_id", values["task_id"], wrong)
    vswitch_id = values["vswitch_id"] and checked_id("vswitch_id", values["vswitch_id"], wrong)
    pages = values["hugepages"] and pages_of(values["hugepages"])
    if values["hugepages"] and pages is None:
        wrong.append(f"hugepages={values['hugepages']!r}: give <size>kB=<number>, parted by commas")
    rnics = checked_rnics(rnic_tables(flags, environment, table, wrong), container_id, wrong)
    keys: tuple[bytes, ...] = ()
    if values["probe_key_file"]:
        try:
            keys = read_keys(Path(values["probe_key_file"]))
        except ConfigError as error:
            wrong.append(str(error))
    overlay = checked_overlay(table.get("overlay"), wrong)
    health = None
    if values["health"]:
        try:
            health = parse_health(values["health"])
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        raise ConfigError("; ".join(wrong))
    hz = values["counters_hz"]
    return AgentConfig(
        id=agent_id,
        host_id=host_id,
        container_id=container_id,
        task_id=task_id or None,
        interval_ns=values["interval_ms"] * MS_NS,
        timeout_ns=values["timeout_ms"] * MS_NS,
        spread_ns=min(values["spread_ms"], values["interval_ms"]) * MS_NS,
        confirm=values["confirm"],
        flows=values["flows"],
        max_rate_hz=values["max_rate_hz"],
        probe_bytes=values["probe_bytes"],
        heartbeat_ns=values["heartbeat_ms"] * MS_NS,
        counters_tick_ns=10**9 // hz if hz else None,
        states_ns=values["states_s"] * 10**9,
        sysfs=values["sysfs"],
        procfs=values["procfs"],
        hugepages=pages or None,
        vswitch_id=vswitch_id or None,
        trace_refresh_ns=values["trace_refresh_s"] * 10**9,
        queue_bytes=values["queue_kbytes"] * 1024,
        linger_ns=values["linger_ms"] * MS_NS,
        rnics=rnics,
        probe_keys=keys,
        overlay=overlay,
        health=health,
    )
