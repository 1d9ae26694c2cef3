"""The 5-tuples of one simulated agent: their paths, which are cut, what traces of them show.

Pure. Numbers are those of `arena.world.fabric`; replies take the way of the probe back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from arena.simulation.tracing import GAP_NS, REFRESH_NS
from arena.world.fabric import NOWHERE, Fabric, address
from arena.world.latency import PATH_SIGMA
from ops.bench.cluster.shape import CLUSTER, RAILS
from ops.bench.rig.load import BASE_NS
from probers.probing.trace import TraceSettings
from schemas.columns.arrays import Int64s
from schemas.enums import TraceCause
from schemas.ids import path_id
from schemas.records import PingTarget
from schemas.units import US_NS

# An agent begins so many traces of new 5-tuples a second (`probers.probing.trace`).
DISCOVERY_NS: Final = 10**9 // round(TraceSettings(timeout_ns=0).rate_hz)
NEVER_NS: Final = -(2**62)
HOP_NS: Final = 5_000
SLOW_PATH_NS: Final = 150_000
Dead = frozenset[int]


def rnic_of(endpoint: str) -> int:
    """Return the number of an endpoint's RNIC.

    >>> rnic_of("ep:h3/r1")
    25
    """
    host, _, rail = endpoint.removeprefix("ep:h").partition("/r")
    return int(host) * RAILS + int(rail)


@dataclass
class Paths:
    """The 5-tuples that an agent probes now.

    Attributes
    ----------
    src, dst, flow : by 5-tuple
    way : components that it crosses, shape (n, 13)
    base_ns : its round trip
    trace_ns : when it is traced next while it is healthy
    told_ns : when it was traced last because of a loss
    """

    src: list[str]
    dst: list[str]
    flow: list[int]
    way: Int64s
    base_ns: np.typing.NDArray[np.float64]
    trace_ns: Int64s
    told_ns: Int64s = field(init=False)

    def __post_init__(self) -> None:
        self.told_ns = np.full(len(self.src), NEVER_NS, np.int64)

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def of(
        cls,
        targets: tuple[PingTarget, ...],
        here: set[int],
        fabric: Fabric,
        *,
        now_ns: int,
        rng: np.random.Generator,
    ) -> "Paths":
        """Return the 5-tuples of a list whose two ends are registered, as an agent probes them."""
        rows = [
            (t.src, t.dst, a, b, flow)
            for t in targets
            if (a := rnic_of(t.src)) in here and (b := rnic_of(t.dst)) in here
            for flow in range(t.flows)
        ]
        numbers = np.array([row[2:] for row in rows], np.int64).reshape(-1, 3)
        count = len(rows)
        return cls(
            src=[row[0] for row in rows],
            dst=[row[1] for row in rows],
            flow=[row[4] for row in rows],
            way=fabric.paths(*(np.ascontiguousarray(c) for c in numbers.T)),
            base_ns=BASE_NS * np.exp(rng.normal(0.0, PATH_SIGMA, count)),
            trace_ns=now_ns + DISCOVERY_NS * np.arange(count, dtype=np.int64),
        )

    def cut(self, dead: Dead) -> list[int]:
        """Return which 5-tuples get nothing through."""
        if not dead or not len(self):
            return []
        found: list[int] = np.flatnonzero(
            np.isin(self.way, np.fromiter(dead, np.int64)).any(axis=1)
        ).tolist()
        return found

    def due(self, started_ns: int, cut: list[int], rng: np.random.Generator) -> list[int]:
        """Return the healthy 5-tuples that are traced in a round, and set when they are next."""
        due = self.trace_ns <= started_ns
        due[cut] = False
        found: list[int] = np.flatnonzero(due).tolist()
        self.refresh(found, started_ns, rng)
        return found

    def refresh(self, places: list[int], now_ns: int, rng: np.random.Generator) -> None:
        """Set when healthy 5-tuples that have been traced are traced again."""
        spread = rng.integers(-REFRESH_NS // 8, REFRESH_NS // 8, len(places))
        self.trace_ns[places] = now_ns + REFRESH_NS + spread

    def lost_due(self, started_ns: int, cut: list[int]) -> list[int]:
        """Return the 5-tuples that are traced because of a loss in a round."""
        found = [n for n in cut if started_ns - self.told_ns[n] >= GAP_NS]
        self.told_ns[found] = started_ns
        return found

    def trace(
        self,
        place: int,
        agent: str,
        at_ns: int,
        *,
        fabric: Fabric,
        target0: int,
        cause: TraceCause,
        dead: Dead,
    ) -> dict[str, Any]:
        """Return what a trace shows, as a datum: beyond what is dead nothing answers.

        Parameters
        ----------
        target0
            Number of the first endpoint: targets answer with their own addresses.
        """
        hops = list(self._hops(place, fabric, target0, dead))
        whole = len(hops) > 0 and hops[-1]["address"] is not None
        src, dst = self.src[place], self.dst[place]
        return {
            "cluster": CLUSTER, "path_id": path_id(src, dst), "src": src, "dst": dst,
            "flow": self.flow[place], "agent_id": agent, "traced_at": at_ns // US_NS,
            "cause": cause.value, "complete": whole,
            "incomplete_reason": None if whole else "no answer", "producer_version": None,
            "hops": hops,
        }  # fmt: skip

    def _hops(
        self, place: int, fabric: Fabric, target0: int, dead: Dead
    ) -> Iterator[dict[str, Any]]:
        row: list[int] = self.way[place].tolist()
        crossed = [number for number in row if number != NOWHERE]
        switches = range(fabric.numbers(1).start, fabric.numbers(3).stop)
        ttl = 0
        for number in crossed[:-1]:
            if number in dead:
                break
            if number in switches:
                ttl += 1
                yield _hop(ttl, address(number))
        else:
            last = crossed[-1]
            shown = None if last in dead else address(target0 + last)
            yield _hop(ttl + 1, shown)
            return
        yield _hop(ttl + 1, None)


def _hop(ttl: int, shown: str | None) -> dict[str, Any]:
    rtt_ns = None if shown is None else SLOW_PATH_NS + HOP_NS * ttl
    return {"ttl": ttl, "address": shown, "rtt_ns": rtt_ns}
