"""x."""

from dataclasses import replace
from typing import Final

from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE, Inference

# A period within this ratio is the same; iterations jitter and drift.
SAME_PERIOD: Final = 1.1


def to_record(
    inference: Inference,
    job: Job,
    *,
    cluster: str,
    version: int,
    window_ns: tuple[int, int],
    min_confidence: float = DEFAULT_MIN_CONFIDENCE,
    producer_version: str | None = None,
) -> Skeleton:
    """Return the skeleton.v1 record.

    Below `min_confidence` it says only why: no reader shall take a guess for a
    skeleton. Otherwise every RNIC of the job is a member, with group null if it is seen to take no
    part; one of which nothing is known is left out, and keeps its basic list.
    """
    if inference.confidence < min_confidence:
        inference = Inference(
            confidence=inference.confidence,
            reason=inference.reason or "the parts of the inference do not agree",
            period_ns=inference.period_ns,
        )
    members: dict[str, SkeletonMember] = {}
    for index, group in enumerate(inference.groups):
        stage = index // (inference.width * inference.cp) if inference.directed else None
        for rnic in group:
            members[rnic.endpoint_id] = SkeletonMember(
                endpoint_id=rnic.endpoint_id, group=index, stage=stage
            )
    for endpoint_id in inference.idle:
        members[endpoint_id] = SkeletonMember(endpoint_id=endpoint_id)
    return Skeleton(
        cluster=cluster,
        task_id=job.task_id,
        version=version,
        window_start_at=window_ns[0] // 1000,
        window_end_at=window_ns[1] // 1000,
        confidence=inference.confidence,
        reason=inference.reason,
        period_ns=inference.period_ns,
        dp=inference.dp,
        pp=inference.pp,
        tp=inference.tp,
        producer_version=producer_version,
        members=tuple(members[r.endpoint_id] for r in job.ordered if r.endpoint_id in members),
        pairs=tuple(SkeletonPair(a=a, b=b) for a, b in sorted(inference.pairs)),
    )


class CurrentSkeleton:
    """What stands for one job, and what may replace it."""

    def __init__(self, skeleton: Skeleton | None = None) -> None:
        self.skeleton = skeleton
        self._rival: Skeleton | None = None
        self._lost = False

    def offer(self, new: Skeleton, *, usable: bool = True) -> Skeleton | None:
        """Return the record to publish, None if what stands goes on standing.

        The version of `new` is ignored: it becomes that of the old plus one.
        `usable` False: what stands does not fit the job any more, and so counts
        as unsure.
        """
        old = self.skeleton
        if old is None:
            return self._stands(replace(new, version=1))
        sure = is_sure(old) and usable
        if self._lost:
            new = old if sure and not is_sure(new) else new
            return self._stands(replace(new, version=old.version + 1))
        if sure and not is_sure(new):
            self._rival = None
            return None
        if same(old, new) and (usable or not is_sure(new)):
            self._rival = None
            return None
        rival, self._rival = self._rival, new
        upgrade = is_sure(new) and not sure
        if upgrade or (rival is not None and same(rival, new)):
            return self._stands(replace(new, version=old.version + 1))
        return None

    def failed(self) -> None:
        """Take back that what stands was published: the next offer publishes again."""
        self._lost = True

    def _stands(self, skeleton: Skeleton) -> Skeleton:
        self.skeleton = skeleton
        self._rival = None
        self._lost = False
        return skeleton


def is_sure(skeleton: Skeleton) -> bool:
    """Whether the record holds a skeleton, not only a reason for none."""
    return skeleton.dp is not None


def same(one: Skeleton, other: Skeleton) -> bool:
    """Whether two records say the same to a reader."""
    if is_sure(one) != is_sure(other):
        return False
    if not is_sure(one):
        return one.reason == other.reason
    return _what(one) == _what(other) and _same_period(one.period_ns, other.period_ns)


def _what(s: Skeleton) -> tuple[object, ...]:
    # A reason may come and go with the traffic's clarity; the pairs say what follows from it.
    return (s.dp, s.pp, s.tp, s.ep, s.cp, s.members, s.pairs)


def _same_period(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return max(one, other) <= SAME_PERIOD * min(one, other)
