"""`make bench-agent`: what one agent costs its host, its broker up, away and back; attacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ops.bench.agent.attack import flood, silent
from ops.bench.agent.bare import bare_cpu_percent
from ops.bench.agent.peers import Traffic
from ops.bench.agent.rig import AgentOutput, AgentRig, Shape, Usage
from ops.bench.rig.report import Figure, Parts, Say, Sense, figure, scratch_folder

COMMAND: Final = "make bench-agent"
RUNS: Final = 1
# How long the broker is away, and how long the agent is watched before and after.
LASTS_S: Final = 600.0
AROUND_S: Final = 120.0
MB: Final = 1e6
RSS_BAR_MB: Final = 30.0
CPU_BAR_PERCENT: Final = 1.0
# How many times what a loop in C takes for the same packets.
BARE_BAR: Final = 4.0
WIRE_BAR_KBIT: Final = 300.0
# Of 80 probes a second, so that one at either edge of the stretch may be missing.
SENT_SHARE: Final = 0.99
ANSWERED_SHARE: Final = 0.999
# Headers of one probe or reply: IPv4, UDP, Ethernet without its check sum.
IP_BYTES: Final = 20
UDP_BYTES: Final = 8
ETHERNET_BYTES: Final = 14
FRAME_BYTES: Final = IP_BYTES + UDP_BYTES + ETHERNET_BYTES
PHASES: Final = ("up", "away", "back")

NOTES: Final = (
    "MB: 1,000,000 bytes. RSS: the largest of the stretch, sampled each second; peak: VmHWM, "
    "since the start; PSS: shared pages divided among who has them.",
    "CPU: utime + stime of all threads over the time passed; it contains what the kernel does "
    "at the agent's sending, which on loopback is the whole way to the receiver's socket.",
    "Bare loop: `ops/bench/agent/bare_loop.c` sends, answers and reads the same packets at the "
    "same times, and does nothing else; measured in the same run, before the agent.",
    "Wire: probes and replies of the RNIC that has most, both ways, each with its payload and "
    "20 (IP) + 8 (UDP) + 14 (Ethernet) bytes. Over RDMA the same payload has 20 + 8 + 14 and "
    "12 (BTH) + 8 (DETH) + 4 (ICRC), and where the RNIC stamps completions a follow-up of 50 "
    "bytes: 10 targets and 10 peers at 1 Hz are 20 × 3 × 116 × 8 = 55.7 Kbit/s.",
    "Beside it, as published: R-Pingmesh's agent 18.5 MB, 3 % of a core and below 300 Kbit/s per "
    "RNIC on hosts of 8 RNICs; SkeletonHunter's 35 MB and 1 %.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What became of the rounds of a run: each is delivered, or counted as dropped."""

    delivered: int
    dropped: int
    unaccounted: int
    twice: int


def outage(heard: AgentOutput) -> Outage:
    """Account for all rounds up to the latest that has come."""
    made = max(heard.rounds, default=-1) + 1
    dropped = heard.heartbeat.rounds_dropped if heard.heartbeat else 0
    return Outage(
        delivered=len(heard.rounds),
        dropped=dropped,
        unaccounted=max(0, made - len(heard.rounds) - dropped),
        twice=sum(count - 1 for count in heard.rounds.values()),
    )


def wire_kbit_s(traffic: list[Traffic], seconds: float) -> float:
    """Return the Kbit/s of the RNIC that has most, headers and both ways."""
    return max(8 * (t.payload_bytes + FRAME_BYTES * t.packets) / seconds / 1e3 for t in traffic)


def footprint(runs: int, say: Say, *, seconds: float) -> list[Figure]:
    """Measure the three phases, each run with an agent and a broker of its own."""
    shape = Shape()
    spans: dict[str, list[Usage]] = {phase: [] for phase in PHASES}
    ends: list[Outage] = []
    bare: list[float] = []
    for turn in range(runs):
        with scratch_folder() as folder:
            loop = bare_cpu_percent(folder, shape.rnics, shape.targets, min(AROUND_S, seconds))
        if loop is not None:
            bare.append(loop)
            say(f"{turn + 1}/{runs} bare loop in C: {loop:.2f} % of a core")
        with scratch_folder() as folder, AgentRig(folder, shape) as rig:
            for phase in PHASES:
                if phase == "away":
                    rig.take_broker()
                elif phase == "back":
                    rig.give_broker()
                lasts_s = seconds if phase == "away" else min(AROUND_S, seconds)
                spans[phase].append(rig.measure(lasts_s))
                say(f"{turn + 1}/{runs} broker {phase}: {_line(spans[phase][-1])}")
            ends.append(outage(rig.output))
        say(f"{turn + 1}/{runs} {ends[-1]}")
    rows = [row for phase in PHASES for row in _phase_rows(phase, spans[phase], shape)]
    return rows + _bare_rows(spans["up"], bare, shape) + _outage_rows(ends)


def _phase_rows(phase: str, spans: list[Usage], shape: Shape) -> list[Figure]:
    what = f"{shape}, broker {phase} {spans[0].seconds:.0f} s"
    probes = shape.rnics * shape.targets

    def row(
        name: str, samples: list[float], unit: str, bar: float | None, sense: Sense = "<="
    ) -> Figure:
        return figure(f"{what}: {name}", samples, unit, bar, sense, worst=True)

    def each(name: str) -> list[int]:
        return [sum(getattr(t, name) for t in span.traffic) for span in spans]

    seconds = [span.seconds for span in spans]
    sent = [n / s for n, s in zip(each("probes"), seconds, strict=True)]
    share = [a / max(b, 1) for a, b in zip(each("answered"), each("asked"), strict=True)]
    wires = [wire_kbit_s(s.traffic, s.seconds) for s in spans]
    return [
        row("RSS", [_rss_mb(span) for span in spans], "MB", RSS_BAR_MB),
        row("peak RSS so far", [s.memory[-1].peak_bytes / MB for s in spans], "MB", RSS_BAR_MB),
        row("PSS", [m / MB for s in spans if (m := s.pss_bytes) is not None], "MB", None),
        row("CPU", [s.cpu_percent for s in spans], "% of a core", CPU_BAR_PERCENT),
        row("wire per RNIC", wires, "Kbit/s", WIRE_BAR_KBIT),
        row("probes sent", sent, "/s", SENT_SHARE * probes, ">="),
        row("peers' probes answered", share, "of all", ANSWERED_SHARE, ">="),
    ]


def _bare_rows(spans: list[Usage], bare: list[float], shape: Shape) -> list[Figure]:
    """Compare with the bare loop of the same turn; nothing where there is no compiler."""
    if not bare:
        return []
    ratios = [span.cpu_percent / loop for span, loop in zip(spans, bare, strict=True)]
    return [
        figure(f"{shape}: CPU of a bare loop in C", bare, "% of a core", None, worst=True),
        figure(f"{shape}: CPU, broker up, over that", ratios, "×", BARE_BAR, worst=True),
    ]


def _outage_rows(ends: list[Outage]) -> list[Figure]:
    def row(name: str, samples: list[int], bar: float | None) -> Figure:
        return figure(f"rounds of the run {name}", list(map(float, samples)), "", bar, worst=True)

    return [
        row("delivered", [end.delivered for end in ends], None),
        row("dropped for lack of room, and counted", [end.dropped for end in ends], None),
        row("neither delivered nor counted", [end.unaccounted for end in ends], 0.0),
        row("delivered twice", [end.twice for end in ends], 0.0),
    ]


def _rss_mb(span: Usage) -> float:
    return max(m.rss_bytes for m in span.memory) / MB


def _line(span: Usage) -> str:
    return (
        f"{_rss_mb(span):.1f} MB, {span.cpu_percent:.2f} % of a core, "
        f"{wire_kbit_s(span.traffic, span.seconds):.1f} Kbit/s"
    )


PARTS: Final[Parts] = {"footprint": footprint, "flood": flood, "silent": silent}
DEFAULT_RUNS: Final[Mapping[str, int]] = {}
