"""The true skeleton of a capture, with which an inference is compared."""

from dataclasses import dataclass, field

from arena.workload.layout import Layout
from arena.workload.spec import JobSpec
from arena.workload.transfers import Transfers

Place = tuple[str, int]
PairOf = tuple[Place, Place]


@dataclass(frozen=True)
class JobTruth:
    """One job's truth.

    Attributes
    ----------
    pairs : unordered pairs of RNICs that exchange bytes over the network → kinds of parallelism
    groups : kind → groups of RNICs that share a collective or a pipeline
    stages : RNICs of each stage, in order
    clusters : RNICs at the same position of different replicas
    """

    spec: JobSpec
    rnics: tuple[Place, ...]
    pairs: dict[PairOf, frozenset[str]]
    groups: dict[str, list[frozenset[Place]]]
    stages: list[frozenset[Place]]
    clusters: list[frozenset[Place]]


@dataclass(frozen=True)
class CaptureTruth:
    """The jobs of a capture, and RNICs that belong to none."""

    jobs: list[JobTruth]
    idle: frozenset[Place] = field(default_factory=frozenset)


def ordered(a: Place, b: Place) -> PairOf:
    """Return an unordered pair, the smaller place first."""
    return (a, b) if a < b else (b, a)


def job_truth(spec: JobSpec, transfers: Transfers, hosts: list[str], rail0: int = 0) -> JobTruth:
    """Return the truth of a job whose k-th host has this name and whose rails begin at rail0."""
    layout = Layout(spec)

    def places(lane: int) -> list[Place]:
        host, slot = divmod(lane, spec.slots)
        return [(hosts[host], rail0 + slot * spec.width + k) for k in range(spec.width)]

    pairs: dict[PairOf, frozenset[str]] = {}
    for (a, b), kinds in transfers.kinds.items():
        for x, y in zip(places(a), places(b), strict=True):
            pair = ordered(x, y)
            pairs[pair] = pairs.get(pair, frozenset()) | kinds

    def rows(lanes: list[int]) -> list[frozenset[Place]]:
        return [frozenset(x) for x in zip(*map(places, dict.fromkeys(lanes)), strict=True)]

    lane_of = layout.lane_of
    groups: dict[str, list[frozenset[Place]]] = {"dp": [], "pp": [], "cp": [], "ep": []}
    if spec.dp * spec.cp > 1:
        groups["dp"] = [g for _, lanes in layout.gradient_groups() for g in rows(lanes)]
    if spec.pp > 1:
        groups["pp"] = [
            g
            for d in range(spec.dp)
            for c in range(spec.cp)
            for g in rows(lane_of[:, d, c].tolist())
        ]
    groups["cp"] = [g for _, _, lanes in layout.context_groups() for g in rows(lanes)]
    groups["ep"] = [g for _, _, lanes in layout.expert_groups() for g in rows(lanes)]
    return JobTruth(
        spec=spec,
        rnics=tuple(p for lane in range(layout.lanes) for p in places(lane)),
        pairs=pairs,
        groups=groups,
        stages=[
            frozenset(p for lane in lane_of[s].ravel().tolist() for p in places(lane))
            for s in range(spec.pp)
        ],
        clusters=[
            g
            for s in range(spec.pp)
            for c in range(spec.cp)
            for g in rows(lane_of[s, :, c].tolist())
        ],
    )
