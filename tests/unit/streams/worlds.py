"""Made probe rounds for the tests of the stream worker: agents, paths, faults, disorder."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Anomaly, PathWindow
from schemas.units import SECOND_NS
from streams.config import DetectionConfig
from streams.core.anchors import Anchor
from streams.core.checkpoint import Checkpoint
from streams.core.clock import ClockState
from streams.core.machine import PartitionMachine
from streams.core.outputs import Output
from streams.core.partition import Identity, RefusedRoundError

CLUSTER = "lab"
IDENTITY = Identity(CLUSTER, 0)
# Of an empty partition.
BEGIN = Checkpoint(
    offset=0,
    lookback=Anchor(0, ClockState()),
    closed_ns=0,
    window_ns=30 * SECOND_NS,
    window_offset=0,
    anomaly_offset=0,
)
# On the grid of half hours.
START_S = 1_699_999_200

Datum = dict[str, Any]


def result(
    src: str,
    dst: str,
    flow: int,
    offset_ns: int,
    rtt_ns: int | None,
    *,
    transport: str = "UDP",
    host_ns: int | None = None,
    responder_ns: int = 20_000,
) -> Datum:
    """Return one result; `rtt_ns` None: timed out."""
    return {
        "src": src,
        "dst": dst,
        "flow": flow,
        "sent_offset_ns": offset_ns,
        "transport": transport,
        "status": "TIMEOUT" if rtt_ns is None else "OK",
        "rtt_ns": rtt_ns,
        "prober_delay_ns": host_ns,
        "responder_delay_ns": None if rtt_ns is None else responder_ns,
        "clock": "KERNEL",
    }


def round_datum(
    results: list[Datum],
    started_ns: int,
    seq: int = 0,
    *,
    agent: str = "agent-h0",
    incarnation: int = 1,
    cluster: str = CLUSTER,
) -> Datum:
    """Return one round."""
    return {
        "cluster": cluster,
        "agent_id": agent,
        "host_id": agent,
        "incarnation": incarnation,
        "round_seq": seq,
        "started_at": started_ns // 1000,
        "interval_ns": SECOND_NS,
        "pinglist_version": 1,
        "producer_version": "test",
        "results": results,
    }


@dataclass(slots=True)
class Fault:
    """What happens to chosen flows between two seconds of the world."""

    start_s: float
    end_s: float
    flows: frozenset[tuple[int, int]]
    loss: float = 0.0
    delay_ns: int = 0


@dataclass(slots=True, kw_only=True)
class World:
    """One agent's probes of some targets, a second apart, with the given faults.

    Round trips are log-normal around `median_ns`; a share `tail` of them has a
    Pareto excess as a busy machine gives. A lost probe is re-probed twice. A share `late` of the
    probes is held up by the prober, and as many by the target.
    """

    seed: int = 0
    agent: str = "agent-h0"
    targets: int = 2
    flows: int = 4
    median_ns: float = 1.5e6
    sigma: float = 0.2
    tail: float = 0.0
    base_loss: float = 0.0
    confirm: int = 2
    transport: str = "UDP"
    late: float = 0.0
    faults: list[Fault] = field(default_factory=list)

    def rounds(self, seconds: int, start_s: int = START_S) -> Iterator[Datum]:
        """Yield the rounds of the first `seconds`."""
        rng = np.random.default_rng(self.seed)
        for second in range(seconds):
            yield self._round(rng, second, start_s)

    def _round(self, rng: np.random.Generator, second: int, start_s: int) -> Datum:
        results = []
        for target in range(self.targets):
            for flow in range(self.flows):
                offset = (target * self.flows + flow) * 10_000_000
                for attempt in range(1 + self.confirm):
                    rtt = self._rtt(rng, second, target, flow)
                    at = offset + attempt * 250_000_000
                    results.append(
                        result(
                            f"{self.agent}/r0", f"t{target}/r0", flow, at, rtt,
                            transport=self.transport, **self._delays(rng),
                        )
                    )  # fmt: skip
                    if rtt is not None:
                        break
        results.sort(key=lambda r: int(r["sent_offset_ns"]))
        return round_datum(results, (start_s + second) * SECOND_NS, second, agent=self.agent)

    def _delays(self, rng: np.random.Generator) -> dict[str, int]:
        if not self.late:
            return {}
        held = np.where(rng.random(2) < self.late, 200_000_000, 20_000)
        return {"host_ns": int(held[0]), "responder_ns": int(held[1])}

    def _rtt(self, rng: np.random.Generator, second: int, target: int, flow: int) -> int | None:
        delay, loss = 0, self.base_loss
        for fault in self.faults:
            if fault.start_s <= second < fault.end_s and (target, flow) in fault.flows:
                delay += fault.delay_ns
                loss = max(loss, fault.loss)
        rtt = self.median_ns * np.exp(self.sigma * rng.standard_normal())
        if self.tail and rng.random() < self.tail:
            rtt += rng.pareto(1.5) * 5e5
        if loss and rng.random() < loss:
            return None
        return int(min(rtt, 4e8)) + delay


def run(machine: PartitionMachine, log: list[Datum], first: int = 0) -> list[Output]:
    """Process a log; refused rounds leave nothing but their count."""
    outputs: list[Output] = []
    for offset, datum in enumerate(log, first):
        try:
            outputs += machine.process(datum, offset)
        except RefusedRoundError as error:
            machine.counts[error.counter] += 1
    return outputs


def machine(config: DetectionConfig | None = None) -> PartitionMachine:
    """Return a fresh machine."""
    return PartitionMachine(config or DetectionConfig(), IDENTITY)


def windows_of(outputs: list[Output]) -> list[PathWindow]:
    """Return the windows among outputs."""
    return [o.record for o in outputs if isinstance(o.record, PathWindow)]


def anomalies_of(outputs: list[Output], kind: str = "", state: str = "") -> list[Anomaly]:
    """Return the anomalies among outputs, progress marks left out, of a kind and state."""
    found = [o.record for o in outputs if isinstance(o.record, Anomaly)]
    return [
        a for a in found
        if a.kind != "PROGRESS" and kind in ("", a.kind) and state in ("", a.state)
    ]  # fmt: skip


def as_bytes(outputs: list[Output]) -> list[tuple[str, str, int, bytes]]:
    """Return outputs as they would stand in the topics."""
    codec = Codec()
    return [(o.topic.name, o.key, o.at_ms, codec.encode(o.topic, o.record)) for o in outputs]


def through_wire(records: list[Any]) -> list[Any]:
    """Return records as a reader of the topic sees them."""
    codec = Codec()
    return [
        codec.decode(topic, codec.encode(topic, r))
        for r in records
        for topic in [topics.ANOMALY if isinstance(r, Anomaly) else topics.PROBE_WINDOW]
    ]
