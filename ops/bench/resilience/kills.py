"""SIGKILLs random processes of a live pipeline while links are cut and healed.

A loopback lab with real agents, two workers, localizer, skeleton job and broker. Afterwards every
window is compared with the rounds in the log, and every verdict with what was put in.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from ops.bench.cluster.watch import WorkerLag
from ops.bench.resilience.supervisor import Supervised, Supervisor
from ops.bench.resilience.verdicts import Absence, Injected, Published, Score, score
from ops.bench.rig.report import Figure, Parts, Say, figure, print_table, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.bench.rig.windows import Verdict, log_messages, read_truth
from ops.lab.lab import Lab, LabConfig
from ops.running.pipeline import (
    LAB_TABLES,
    LOCALIZER,
    MODULES,
    SKELETON,
    WORKER,
    Pipeline,
    PipelineConfig,
)
from schemas.codec import Codec
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.process.signals import interruptible
from schemas.topics import FAULT_EVENT, HEARTBEAT
from schemas.units import MS_NS, SECOND_NS, us_to_ns
from streams.edge.lookback import LogReader

KILLS: Final = 100
FAULTS_PER_KILL: Final = 0.3
SEED: Final = 20263
WORKERS: Final = 2
BROKER: Final = "broker"
AGENT: Final = "agent"
READY_TIMEOUT_S: Final = 200.0
# Before the first fault agents trace their paths, and the skeleton job finds the job's pairs.
BEGIN_S: Final = 20.0
# How long a link is cut and how long it is well before the next cut: long enough for a verdict
# after a worker was killed, whose session lasts six seconds.
CUT_S: Final = (12.0, 18.0)
WELL_S: Final = (20.0, 28.0)
# The same place is cut again after more than the minute in which it would be the same fault.
APART: Final = 3
# Without faults a kill has so much time.
KILL_S: Final = 12.0
# Until all verdicts are resolved and all rounds processed.
DRAIN_S: Final = 180.0
CALM_S: Final = 10.0
POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """When links are cut and healed and when processes are killed, seconds from the begin."""

    cuts: tuple[tuple[float, float, str], ...]
    kills_s: tuple[float, ...]
    lasts_s: float


def plan_run(kills: int, faults: int, links: Sequence[str], chance: random.Random) -> Plan:
    """Draw times and places; no link is cut again within the next few cuts."""
    cuts: list[tuple[float, float, str]] = []
    at_s = 0.0
    for _ in range(faults):
        begin_s = at_s + chance.uniform(*WELL_S)
        at_s = begin_s + chance.uniform(*CUT_S)
        recent = {link for _, _, link in cuts[-APART:]}
        cuts.append((begin_s, at_s, chance.choice([n for n in links if n not in recent])))
    lasts_s = at_s + WELL_S[1] if faults else kills * KILL_S
    kills_s = sorted(chance.uniform(0.0, lasts_s) for _ in range(kills))
    return Plan(tuple(cuts), tuple(kills_s), lasts_s)


@dataclass(slots=True)
class KillRun:
    """What came of a run: windows, verdicts, what was killed and when."""

    verdict: Verdict
    score: Score
    killed: list[tuple[int, str]] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)


class Attack:
    """Carries a plan out on a pipeline and its lab."""

    def __init__(self, pipeline: Pipeline, lab: Lab, chance: random.Random, say: Say) -> None:
        self._pipeline = pipeline
        self._lab = lab
        self._chance = chance
        self._say = say
        self.injected: list[Injected] = []
        self.killed: list[tuple[int, str]] = []
        # Spent on starts: that of a broker on a busy machine takes half a minute.
        self._blocked_s = 0.0
        self.supervisor = Supervisor(list(self._processes()), say)

    def _processes(self) -> Iterator[Supervised]:
        pipeline, lab, kafka = self._pipeline, self._lab, self._pipeline.kafka
        modules = {LOCALIZER: MODULES[LOCALIZER], SKELETON: MODULES[SKELETON]}
        modules |= dict.fromkeys(worker_names(), MODULES[WORKER])
        for name, module in modules.items():
            kind = WORKER if module == MODULES[WORKER] else name
            yield Supervised(
                name, kind, partial(_runs, pipeline, name), partial(pipeline.group.kill, name),
                partial(pipeline.start, name, module),
            )  # fmt: skip
        for name in lab.shape.agent_ids():
            yield Supervised(
                name, AGENT, partial(_agent_runs, lab, name),
                partial(lab.fault, "agent-kill", name), partial(lab.heal, name),
            )  # fmt: skip
        if kafka is not None:
            yield Supervised(BROKER, BROKER, lambda: kafka.running, kafka.kill, kafka.restart)

    def run(self, plan: Plan) -> None:
        """Cut, heal and kill at the planned times."""
        begin_s = time.monotonic()
        steps: list[tuple[float, str, str]] = [(at_s, "kill", "") for at_s in plan.kills_s]
        for cut_s, heal_s, link in plan.cuts:
            steps += [(cut_s, "cut", link), (heal_s, "heal", link)]
        for at_s, step, link in sorted(steps):
            self.wait(begin_s + at_s + self._blocked_s - time.monotonic())
            if step == "kill":
                self._kill()
            elif step == "cut":
                self._lab.fault("link-cut", link)
                self.injected.append(
                    Injected(component_ids=(link,), begin_ns=time.time_ns(), end_ns=0)
                )
                self._say(f"cut {link}")
            else:
                self._lab.heal(link)
                fault = self.injected.pop()
                self.injected.append(
                    Injected(component_ids=fault.component_ids, begin_ns=fault.begin_ns,
                             end_ns=time.time_ns())
                )  # fmt: skip
                self._say(f"healed {link}")
        self.wait(begin_s + plan.lasts_s + self._blocked_s - time.monotonic())

    def wait(self, seconds: float) -> None:
        """Let time pass; restart what has ended, which puts the rest of the plan off."""
        deadline = time.monotonic() + seconds
        while True:
            looked_s = time.monotonic()
            self.supervisor.look()
            now_s = time.monotonic()
            self._blocked_s += now_s - looked_s
            deadline += now_s - looked_s
            if now_s >= deadline:
                return
            time.sleep(POLL_S)

    def _kill(self) -> None:
        """Kill a process: of a random kind among those that run, then a random one of the kind."""
        running = self.supervisor.running()
        kind = self._chance.choice(sorted({process.kind for process in running}))
        process = self._chance.choice([p for p in running if p.kind == kind])
        self.killed.append((time.time_ns(), process.name))
        self.supervisor.kill(process)
        self._say(f"killed {process.name}")


def worker_names() -> list[str]:
    """Return the workers' names; the first is the pipeline's own."""
    return [WORKER, *(f"{WORKER}-{n}" for n in range(2, WORKERS + 1))]


def _runs(pipeline: Pipeline, name: str) -> bool:
    return name in pipeline.group.names() and pipeline.group.child(name).running


def _agent_runs(lab: Lab, name: str) -> bool:
    return name in lab.group.names() and lab.group.child(name).running


def fabric_links(lab: Lab) -> list[str]:
    """Return the links between leaves and spines: an RNIC's own cable cannot be told from it."""
    return [cable.link_id for cable in lab.shape.links if not cable.link_id.count("rnic")]


@contextmanager
def live_pipeline(folder: Path) -> Iterator[tuple[Pipeline, Lab]]:
    """Start broker, workers, skeleton job, localizer and a lab with agents."""
    with Pipeline(PipelineConfig(folder=folder)) as pipeline:
        for name in worker_names()[1:]:
            pipeline.start(name, MODULES[WORKER])
        pipeline.wait_ready(READY_TIMEOUT_S)
        config = LabConfig(settings=pipeline.settings, name="bench-kills", keep=folder / "lab")
        with Lab(config) as lab:
            yield pipeline, lab


def run_kills(folder: Path, say: Say, *, kills: int, faults: int, seed: int) -> KillRun:
    """Kill and cut at random; compare windows and verdicts afterwards."""
    chance = random.Random(seed)  # noqa: S311 - a schedule needs no secrecy
    with live_pipeline(folder) as (pipeline, lab):
        attack = Attack(pipeline, lab, chance, say)
        attack.wait(BEGIN_S)
        plan = plan_run(kills, faults, fabric_links(lab), chance)
        say(f"{kills} kills and {faults} faults within {plan.lasts_s:.0f} s")
        attack.run(plan)
        settings = pipeline.settings
        drain(settings, attack.supervisor, behind_s=CALM_S)
        verdicts = score(
            attack.injected, published_verdicts(settings), absences(settings, attack.killed)
        )
        # What agents publish while rounds and windows are read would be in one of them only.
        attack.supervisor.release(AGENT)
        lab.down()
        drain(settings, attack.supervisor, behind_s=0.0)
        worker = LAB_TABLES[WORKER]
        truth = read_truth(
            settings,
            window_ns=round(float(worker["window_s"]) * SECOND_NS),
            lateness_ns=round(float(worker["allowed_lateness_s"]) * SECOND_NS),
        )
    return KillRun(
        truth.verdict(), verdicts, attack.killed,
        dict(attack.supervisor.kills), dict(attack.supervisor.ended),
    )  # fmt: skip


def drain(settings: KafkaSettings, supervisor: Supervisor, *, behind_s: float) -> None:
    """Wait until all runs, no verdict is open, and workers are at most so far behind."""
    lag = WorkerLag(settings)

    def calm() -> bool:
        lag.sample()
        latest = {p.event.fault_id: p.event.state for p in published_verdicts(settings)}
        still_open = [s for s in latest.values() if s is not FaultLifecycle.RESOLVED]
        return supervisor.all_running and lag.now_s <= behind_s and not still_open

    try:
        wait_until(calm, DRAIN_S, "not calm", check=supervisor.look, poll_s=1.0)
    except TimeoutError:
        # What is still open or missing then counts against the run.
        return
    finally:
        lag.close()


def published_verdicts(settings: KafkaSettings) -> list[Published]:
    """Return all transitions in the topic."""
    codec = Codec()
    with LogReader(settings) as reader:
        return [
            Published(
                event=codec.decode(FAULT_EVENT, message.value() or b""),
                at_ns=message.timestamp()[1] * MS_NS,
            )
            for message in log_messages(reader, settings, FAULT_EVENT)
        ]


def absences(settings: KafkaSettings, killed: Sequence[tuple[int, str]]) -> list[Absence]:
    """Return for how long killed agents did not run: until a new process sent a heartbeat."""
    codec = Codec()
    first_ns: dict[tuple[str, int], int] = {}
    with LogReader(settings) as reader:
        for message in log_messages(reader, settings, HEARTBEAT):
            if message.value() is not None:
                beat = codec.decode(HEARTBEAT, message.value() or b"")
                process = beat.agent_id, beat.incarnation
                first_ns[process] = min(
                    first_ns.get(process, us_to_ns(beat.sent_at)), us_to_ns(beat.sent_at)
                )
    found = []
    for at_ns, name in killed:
        returned = [t for (agent, started), t in first_ns.items() if agent == name and t > at_ns
                    and started > at_ns]  # fmt: skip
        if returned:
            found.append(Absence(agent_id=name, begin_ns=at_ns, end_ns=min(returned)))
    return found


def kills(runs: int, say: Say) -> list[Figure]:
    """Kill so many processes while links are cut and healed."""
    faults = round(FAULTS_PER_KILL * runs)
    with scratch_folder() as folder:
        found = run_kills(folder, say, kills=runs, faults=faults, seed=SEED)
    return kill_figures(found, say, faults)


def kill_figures(found: KillRun, say: Say, faults: int) -> list[Figure]:
    """Return the rows of a run, and say what was wrong."""
    windows, verdicts = found.verdict, found.score
    say(f"killed: {found.kills}; ended by themselves: {found.ended}")
    for name in ("missed", "doubled", "false", "dead"):
        for line in getattr(verdicts, name):
            say(f"{name}: {line}")
    what = f"{sum(found.kills.values())} SIGKILLs of random processes, {faults} faults"
    rows = [
        ("windows judged", windows.windows, None),
        ("windows missing", windows.missing_windows, 0.0),
        ("windows doubled", windows.doubled_windows, 0.0),
        ("windows wrong", windows.wrong_windows, 0.0),
        ("faults missed", len(verdicts.missed), 0.0),
        ("faults doubled", len(verdicts.doubled), 0.0),
        ("false verdicts", len(verdicts.false), 0.0),
        ("agents that were dead and were called so", len(verdicts.dead), None),
        ("processes ended by themselves", sum(found.ended.values()), None),
    ]
    return [
        *(figure(f"{what}: {name}", [float(n)], bar=bar) for name, n, bar in rows),
        figure(f"{what}: cut → verdict, median", verdicts.open_s, "s"),
        figure(f"{what}: cut → verdict, worst", verdicts.open_s, "s", worst=True),
        figure(f"{what}: heal → resolved, worst", verdicts.resolve_s, "s", worst=True),
    ]


PARTS: Final[Parts] = {"kills": kills}


def main() -> int:
    """Run once with other numbers, and keep the logs: to find out why something was missed."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.resilience.kills")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--faults", type=int, default=round(FAULTS_PER_KILL * KILLS))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--keep", type=Path, required=True, help="folder for logs and truth")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(f"{time.time():.2f} {text}", flush=True)

    with interruptible():
        found = run_kills(
            options.keep, say, kills=options.kills, faults=options.faults, seed=options.seed
        )
    rows = kill_figures(found, say, options.faults)
    print_table("kills", rows)
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
