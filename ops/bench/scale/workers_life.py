"""Workers of one group that join, leave and are killed while rounds flow: nothing lost or doubled.

After each kill the group's lag is watched until it has caught up.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ops.bench.cluster.watch import WorkerLag
from ops.bench.rig.load import LoadShape
from ops.bench.rig.report import Say
from ops.bench.rig.waiting import wait_until
from ops.bench.rig.windows import Verdict, read_truth
from ops.bench.throughput.rig import START_TIMEOUT_S, Rig, wait_ready
from ops.running.processes import Child, ChildDiedError
from schemas.kafka.connection import KafkaSettings
from schemas.units import SECOND_NS

WINDOW_S: Final = 5
LATENESS_S: Final = 2
OPTIONS: Final = ("--window-s", str(WINDOW_S), "--allowed-lateness-s", str(LATENESS_S))
JOIN: Final = "join"
LEAVE: Final = "leave"
KILL: Final = "kill"
# One to four workers and back; a killed one has no successor until the next joins.
PLAN: Final = (JOIN, JOIN, KILL, JOIN, JOIN, LEAVE, KILL, JOIN, KILL, JOIN, LEAVE)
# A killed worker's partitions are given away after its session (6 s), then rebuilt.
STEP_S: Final = 20.0
# Behind by less than that a group has caught up: workers commit each second.
CAUGHT_UP_S: Final = 2.0
DRAIN_S: Final = 120.0
LOOK_S: Final = 0.1


@dataclass(slots=True)
class Life:
    """What came of it; `caught_up_s` by kill, None where it took longer than was watched."""

    verdict: Verdict
    duplicates: int
    caught_up_s: list[float | None]


def settled_after(samples: Sequence[tuple[float, float]], limit_s: float) -> float | None:
    """Return from when on a lag stays below a limit; None: it does not.

    Parameters
    ----------
    samples
        (seconds after the event, lag in seconds), in order.

    >>> settled_after([(0.0, 0.5), (1.0, 3.0), (6.0, 8.0), (7.0, 0.4), (9.0, 0.6)], 2.0)
    7.0
    """
    above = [n for n, (_, lag_s) in enumerate(samples) if lag_s >= limit_s]
    if not above:
        return samples[0][0] if samples else None
    return samples[above[-1] + 1][0] if above[-1] + 1 < len(samples) else None


class LifeRun:
    """One run of the plan on a rig."""

    def __init__(self, rig: Rig, settings: KafkaSettings, say: Say) -> None:
        self._rig = rig
        self._settings = settings
        self._say = say
        self._children: dict[str, Child] = {}
        self._number = 0
        self._caught_up_s: list[float | None] = []

    def run(
        self,
        shape: LoadShape,
        plan: Sequence[str],
        step_s: float,
        lives_s: tuple[float, float] | None = None,
    ) -> Life:
        """Let rounds flow for a while longer than the plan lasts; return what came of it.

        Parameters
        ----------
        step_s : how long a step of the plan takes
        lives_s : bounds between which the time after a step is drawn; None: `step_s`

        Raises
        ------
        RuntimeError
            If no window was due.
        """
        chance = random.Random(1)  # noqa: S311 - a schedule needs no secrecy
        self._join()
        self._wait_ready()
        # A worker that leaves takes some seconds to end.
        seconds = round(step_s * (len(plan) + 2))
        intervals = seconds * SECOND_NS // shape.interval_ns
        pace = self._rig.begin(
            "ops.bench.throughput.children", "pace", "--bootstrap", self._settings.bootstrap,
            "--prefix", self._settings.topic_prefix, "--shape", shape.text(),
            "--intervals", str(intervals),
        )  # fmt: skip
        lag = WorkerLag(self._settings)
        try:
            self._watch(lag, step_s)
            for step in plan:
                self._step(step, lag, chance.uniform(*lives_s) if lives_s else step_s)
            self._rig.result(pace)
            self._drain(lag)
        finally:
            lag.close()
        for name in list(self._children):
            self._stop(name)
        verdict, duplicates = self._compare()
        if not verdict.windows:
            raise RuntimeError("no window was due: the run was too short")
        return Life(verdict, duplicates, self._caught_up_s)

    def _step(self, step: str, lag: WorkerLag, step_s: float) -> None:
        names = list(self._children)
        if step == JOIN:
            name = self._join()
        else:
            # The oldest leaves, the newest but one is killed: it holds partitions.
            name = names[0] if step == LEAVE else names[max(0, len(names) - 2)]
            if step == LEAVE:
                self._stop(name)
            else:
                self._rig.group.kill(name)
                del self._children[name]
        if not self._children:
            self._join()
            self._wait_ready()
        samples = self._watch(lag, step_s)
        worst_s = max(lag_s for _, lag_s in samples)
        text = f"{step} {name}: {len(self._children)} workers, {worst_s:.1f} s behind at most"
        if step == KILL:
            self._caught_up_s.append(settled_after(samples, CAUGHT_UP_S))
            text += f", caught up after {self._caught_up_s[-1]} s"
        self._say(text)

    def _watch(self, lag: WorkerLag, seconds: float) -> list[tuple[float, float]]:
        samples: list[tuple[float, float]] = []
        started = time.monotonic()
        while (at_s := time.monotonic() - started) < seconds or not samples:
            self._check()
            lag.sample()
            samples.append((at_s, lag.now_s))
            time.sleep(LOOK_S)
        return samples

    def _drain(self, lag: WorkerLag) -> None:
        def through() -> bool:
            lag.sample()
            return not lag.now_messages

        wait_until(through, DRAIN_S, "the group has not consumed all rounds", check=self._check)

    def _check(self) -> None:
        """Raise if a worker ended by itself; the load may be through before the plan is."""
        for child in self._children.values():
            if not child.running:
                raise ChildDiedError(f"{child.name} ended by itself:\n{child.log_tail()}")

    def _join(self) -> str:
        self._number += 1
        name = f"{self._settings.topic_prefix}worker-{self._number}"
        self._children[name] = self._rig.start_worker(name, self._settings, *OPTIONS)
        return name

    def _stop(self, name: str) -> None:
        child = self._children.pop(name)
        code = self._rig.group.stop(name)
        if code != 0:
            raise RuntimeError(f"{name} ended with {code} at SIGTERM:\n{child.log_tail()}")

    def _wait_ready(self) -> None:
        wait_ready(self._children.values(), START_TIMEOUT_S, check=self._check)

    def _compare(self) -> tuple[Verdict, int]:
        truth = read_truth(
            self._settings, window_ns=WINDOW_S * SECOND_NS, lateness_ns=LATENESS_S * SECOND_NS
        )
        return truth.verdict(), truth.duplicates
