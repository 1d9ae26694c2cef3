"""A scenario: a small TOML file and a seed, from which everything else follows.

name = "one-link"
seed = 7
seconds = 240

[fabric]            # sizes: arena.world.fabric.FabricShape
hosts = 16

[cluster]           # targets, flows, symmetric: arena.world.cluster.Cluster
targets = 4

[[job]]             # arena.world.cluster.JobPlan
task_id = "job-a"
first_host = 0
hosts = 16

[[fault]]           # kind: arena.faults.kinds.KINDS; without a component, one is drawn
kind = "switch_port_down"
begin_s = 60
end_s = 150

[[confounder]]      # kind: arena.faults.confounders.CONFOUNDERS; without a host, one is drawn
kind = "agent_crash"
begin_s = 30
end_s = 80
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from arena.faults.confounders import CONFOUNDERS
from arena.faults.injection import FaultInterval, Injection, Places
from arena.faults.kinds import KINDS, Draw, candidates, inject
from arena.faults.truth import TrueFault
from arena.simulation.world import EPOCH_NS, World
from arena.world.cluster import Cluster, JobPlan
from arena.world.fabric import Fabric, FabricError, FabricShape
from schemas.units import SECOND_NS

MAX_SECONDS: Final = 31 * 24 * 3600
TABLES: Final = frozenset(
    {"name", "seed", "seconds", "fabric", "cluster", "job", "fault", "confounder"}
)
CLUSTER_KEYS: Final = frozenset({"targets", "flows", "symmetric"})


class ScenarioError(ValueError):
    """A scenario that cannot be; the message names what is wrong and what may stand there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEvent:
    """A fault or a confounder: what, when (seconds), and where; `place` None: drawn."""

    kind: str
    begin_s: float
    end_s: float | None = None
    place: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a file says; see the module."""

    name: str
    seed: int
    seconds: int
    fabric: FabricShape
    jobs: tuple[JobPlan, ...]
    targets: int = 4
    flows: int = 2
    symmetric: bool = True
    faults: tuple[ScenarioEvent, ...] = ()
    confounders: tuple[ScenarioEvent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Staged:
    """A scenario with everything drawn: the world, and what is true of it."""

    scenario: Scenario
    world: World
    truth: tuple[TrueFault, ...]


def stage(scenario: Scenario) -> Staged:
    """Draw what a scenario leaves open.

    Raises
    ------
    ScenarioError
        If a place does not exist, or nothing that is watched can have the fault.
    """
    cluster = Cluster(
        Fabric(scenario.fabric), scenario.jobs, targets=scenario.targets, flows=scenario.flows,
        symmetric=scenario.symmetric,
    )  # fmt: skip
    places = Places(cluster)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([scenario.seed, 1])))
    made: list[tuple[FaultInterval, Injection]] = []
    used: set[int] = set()
    for number, happening in enumerate(scenario.faults):
        kind = KINDS[happening.kind]
        span = _span(happening)
        place = _place(happening, kind.name, places, rng=rng, used=used)
        injection = inject(kind, places, rng, span, component=place, fault_id=f"f{number}")
        made.append((span, injection))
    hosts = range(scenario.fabric.hosts)
    for happening in scenario.confounders:
        span = _span(happening)
        host = int(rng.choice(hosts)) if happening.place is None else _host(happening.place)
        draw = Draw(cluster, places, rng, span)
        made.append((span, CONFOUNDERS[happening.kind](draw, host)))
    world = World(
        name=scenario.name, seed=scenario.seed, cluster=cluster, seconds=scenario.seconds,
        effects=tuple(e for _, i in made for e in i.effects),
        hosts=tuple(h for _, i in made for h in i.hosts),
        damages=tuple(d for _, i in made for d in i.damages),
        symptoms=tuple((span, s) for span, i in made for s in i.symptoms),
    )  # fmt: skip
    return Staged(
        scenario=scenario,
        world=world,
        truth=tuple(t for _, i in made for t in i.truth),
    )


def _span(happening: ScenarioEvent) -> FaultInterval:
    end_s = happening.end_s
    return FaultInterval(
        begin_ns=EPOCH_NS + round(happening.begin_s * SECOND_NS),
        end_ns=None if end_s is None else EPOCH_NS + round(end_s * SECOND_NS),
    )


def _place(
    happening: ScenarioEvent,
    kind: str,
    places: Places,
    *,
    rng: np.random.Generator,
    used: set[int],
) -> int:
    if happening.place is not None:
        if happening.place.startswith("host:"):
            return _host(happening.place)
        number = places.cluster.number_of.get(happening.place)
        if number is None:
            raise ScenarioError(f"fault {kind}: no component {happening.place!r} in this cluster")
        return number
    # Two faults stand apart: none shares most of its 5-tuples with another.
    rest = [c for c in candidates(KINDS[kind], places) if c not in used]
    if not rest:
        raise ScenarioError(f"fault {kind}: nothing in this cluster can have it and be noticed")
    chosen = int(rng.choice(rest))
    used.add(chosen)
    return chosen


def _host(place: str) -> int:
    try:
        return int(place.removeprefix("host:h"))
    except ValueError as error:
        raise ScenarioError(f"place {place!r}: a host is written host:h0, host:h1, …") from error


def load(path: Path) -> Scenario:
    """Read a scenario file.

    Raises
    ------
    ScenarioError
        If it cannot be read, or says something that cannot be.
    """
    try:
        return parse(tomllib.loads(path.read_text("utf-8")), default_name=path.stem)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


def parse(table: Mapping[str, Any], *, default_name: str = "scenario") -> Scenario:
    """Return the scenario that a table describes; raises ScenarioError naming what is wrong."""
    unknown = sorted(set(table) - TABLES)
    if unknown:
        raise ScenarioError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(TABLES))}")
    shape = table.get("fabric", {})
    cluster = table.get("cluster", {})
    known = {f.name for f in fields(FabricShape)}
    wrong = sorted(set(shape) - known) + sorted(set(cluster) - CLUSTER_KEYS)
    if wrong:
        raise ScenarioError(f"unknown key {', '.join(wrong)}")
    seconds = table.get("seconds", 300)
    if not isinstance(seconds, int) or not 1 <= seconds <= MAX_SECONDS:
        raise ScenarioError(f"seconds={seconds!r}: a whole number from 1 to {MAX_SECONDS}")
    try:
        fabric = FabricShape(**shape)
        jobs = tuple(JobPlan(**job) for job in table.get("job", ()))
        scenario = Scenario(
            name=str(table.get("name", default_name)), seed=int(table.get("seed", 1)),
            seconds=seconds, fabric=fabric,
            jobs=jobs or (JobPlan(task_id="job-a", first_host=0, hosts=fabric.hosts),),
            faults=_happenings(table.get("fault", ()), KINDS, "fault"),
            confounders=_happenings(table.get("confounder", ()), CONFOUNDERS, "confounder"),
            **cluster,
        )  # fmt: skip
    except (FabricError, TypeError, ValueError) as error:
        raise ScenarioError(str(error)) from error
    return scenario


def _happenings(rows: Any, known: Mapping[str, object], what: str) -> tuple[ScenarioEvent, ...]:
    found = []
    for row in rows:
        if row.get("kind") not in known:
            raise ScenarioError(f"{what} kind={row.get('kind')!r}: one of {', '.join(known)}")
        one = ScenarioEvent(**row)
        if one.begin_s < 0 or (one.end_s is not None and one.end_s <= one.begin_s):
            raise ScenarioError(f"{what} {one.kind}: from {one.begin_s} to {one.end_s} s")
        found.append(one)
    return tuple(found)
