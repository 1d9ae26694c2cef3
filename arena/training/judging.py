"""What was said of a job and its network, held against what is wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from arena.faults.truth import TrueFault, Verdict, verdicts_of
from arena.simulation.world import EPOCH_NS
from arena.training.run import JobRun, JobScenario
from arena.training.shape import GLOO
from arena.training.troubles import DESYNCHRONISED, RankTrouble, Trouble
from arena.world.topology import agent_id, host_id
from schemas.enums import FaultLifecycle, Layer
from schemas.ids import rank_id
from schemas.units import SECOND_NS, US_NS

STANDS: Final = frozenset({"rank_never_launched"})
KIND_OF: Final = {
    Trouble.STOPPED: frozenset({"rank_stopped"}),
    Trouble.EXITED: frozenset({"rank_missing"}),
    Trouble.LOADER: STANDS,
    Trouble.DEADLOCK: STANDS,
    Trouble.SPINNING: STANDS,
    Trouble.GPU: frozenset({"gpu_stopped"}),
    Trouble.SLOW: frozenset({"rank_slow"}),
    Trouble.SLOW_SENDER: frozenset({"rank_slow"}),
    Trouble.SLOW_RECEIVER: frozenset({"rank_slow"}),
    Trouble.HOST: frozenset({"host_down", "agent_dead", "rank_missing"}),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTruth:
    """What is right to say: kinds and components; without kinds nothing at all."""

    name: str
    kinds: frozenset[str]
    components: frozenset[str]
    begin_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobJudged:
    """What came of a scenario.

    Attributes
    ----------
    root_first
        The first page names, in its first place, what is wrong; of what is no fault: no page.
    kind_right
        And under a right name.
    pages
        How many were sent.
    delay_s
        From the fault to the first page; None: there was none.
    """

    name: str
    scenario: str
    root_first: bool
    kind_right: bool
    pages: int
    delay_s: float | None
    said: tuple[str, ...]


def truth_of_trouble(scenario: JobScenario, trouble: RankTrouble) -> JobTruth:
    """Return what is right to say of a fault of a rank."""
    shape, what = scenario.shape, trouble.trouble
    kinds = KIND_OF.get(what, frozenset())
    ranks: Iterable[int] = (trouble.rank,)
    others: frozenset[str] = frozenset()
    if what in DESYNCHRONISED:
        kinds = frozenset({"rank_desynchronised"})
        if shape.library == GLOO:
            # A message that does not fit ends the process that gets it, before it tells anything.
            kinds |= {"rank_missing"}
    if what is Trouble.HOST:
        host = shape.host(trouble.rank)
        ranks = range(host * shape.rails, (host + 1) * shape.rails)
        others = frozenset({agent_id(host), host_id(host)})
    components = frozenset(rank_id(shape.task_id, rank) for rank in ranks) | others
    return JobTruth(
        name=what.name.lower(), kinds=kinds, components=components,
        begin_ns=EPOCH_NS + trouble.begin_us * US_NS,
    )  # fmt: skip


def truth_of_fault(scenario: JobScenario, fault: TrueFault, kind: str) -> JobTruth:
    """Return what is right to say of a fault of the network."""
    kinds = frozenset({fault.kind}) | fault.also_kinds
    components = fault.components
    if kind == "host_down":
        own = truth_of_trouble(scenario, scenario.troubles[0])
        kinds, components = kinds | own.kinds, components | own.components
    return JobTruth(name=kind, kinds=kinds, components=components, begin_ns=fault.begin_ns)


def judged(run: JobRun, truth: JobTruth) -> JobJudged:
    """Hold the pages of a run against the truth."""
    paged_ns = _paged_ns(run)
    pages = [v for v in verdicts_of(run.events) if v.fault_id in paged_ns]
    first = min(pages, key=lambda v: (paged_ns[v.fault_id], v.fault_id), default=None)
    if not truth.kinds:
        right = kind_right = first is None
    else:
        right = first is not None and first.candidates[0] in truth.components
        right &= first is not None and first.opened_ns >= truth.begin_ns
        kind_right = right and first is not None and first.kind in truth.kinds
    return JobJudged(
        name=truth.name, scenario=run.scenario.name, root_first=right, kind_right=kind_right,
        pages=len(pages),
        delay_s=None
        if first is None
        else (paged_ns[first.fault_id] - truth.begin_ns) / SECOND_NS,
        said=tuple(_text(page, paged_ns[page.fault_id]) for page in pages),
    )  # fmt: skip


def _paged_ns(run: JobRun) -> dict[str, int]:
    """Return when somebody was first called for each fault; a warning may become a page later.

    Who waits for a job is called for what stops its ranks, whatever the layer.
    """
    found: dict[str, int] = {}
    for event in sorted(run.events, key=lambda e: (e.event_at, e.fault_id, e.seq)):
        calls = event.layer is not Layer.HOST or event.severity == "critical" or event.ranks
        if calls and event.state is not FaultLifecycle.RESOLVED:
            found.setdefault(event.fault_id, event.event_at * US_NS)
    return found


def _text(page: Verdict, at_ns: int) -> str:
    at_s = (at_ns - EPOCH_NS) / SECOND_NS
    return f"{at_s:.1f} s {page.kind} {page.candidates[0]}{'' if page.decided else ' (undecided)'}"


def judge(run: JobRun) -> JobJudged:
    """Hold a run against the fault of its scenario: of a rank, else of the network."""
    scenario = run.scenario
    if run.staged.truth:
        fault = run.staged.truth[0]
        return judged(run, truth_of_fault(scenario, fault, scenario.faults[0].kind))
    return judged(run, truth_of_trouble(scenario, scenario.troubles[0]))
