"""From an inference to the published skeleton.v1 record, without flapping.

`to_record` builds the record. A record without degrees is empty: it holds only the reason why
nothing could be inferred. `CurrentSkeleton` decides whether a record replaces the published one:

* Nothing is published: the first record is published, whatever it contains.
* An empty one is published: a skeleton replaces it at once; another empty one does if it gives the
  same new reason twice in a row.
* A skeleton is published: only another skeleton that is inferred twice in a row replaces it. An
  empty one changes nothing: a pause in training, a checkpoint or lost counters do not make the
  skeleton wrong.

Two records are equal if a reader would act alike: the same places, pairs and degrees of the
members, or the same reason. Confidence, window, and a period within 10 % do not count.
"""

from dataclasses import replace
from typing import Final

from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE, Inference

# Periods within this ratio are the same; iterations jitter and drift.
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

    Below `min_confidence` it contains only the reason, so that no reader uses a guess as a
    skeleton. Otherwise every RNIC of the job is a member, with group null if it takes no part. An
    RNIC of which nothing is known is left out, and keeps its basic list.
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
    """The published skeleton of one job, and the candidate to replace it."""

    def __init__(self, skeleton: Skeleton | None = None) -> None:
        self.skeleton = skeleton
        self._candidate: Skeleton | None = None
        self._lost = False

    def offer(self, new: Skeleton, *, usable: bool = True) -> Skeleton | None:
        """Return the record to publish; None if the current one stays.

        Parameters
        ----------
        new
            Its version is ignored: it becomes the current one's plus one.
        usable
            False: the current one does not fit the job any more, and counts as empty.
        """
        old = self.skeleton
        if old is None:
            return self._publish(replace(new, version=1))
        holds = holds_skeleton(old) and usable
        if self._lost:
            new = old if holds and not holds_skeleton(new) else new
            return self._publish(replace(new, version=old.version + 1))
        if holds and not holds_skeleton(new):
            self._candidate = None
            return None
        if same_to_reader(old, new) and (usable or not holds_skeleton(new)):
            self._candidate = None
            return None
        candidate, self._candidate = self._candidate, new
        upgrade = holds_skeleton(new) and not holds
        if upgrade or (candidate is not None and same_to_reader(candidate, new)):
            return self._publish(replace(new, version=old.version + 1))
        return None

    def failed(self) -> None:
        """Note that the current one was not delivered: the next offer publishes again."""
        self._lost = True

    def _publish(self, skeleton: Skeleton) -> Skeleton:
        self.skeleton = skeleton
        self._candidate = None
        self._lost = False
        return skeleton


def holds_skeleton(skeleton: Skeleton) -> bool:
    """Return whether the record holds a skeleton, not only a reason for none."""
    return skeleton.dp is not None


def same_to_reader(one: Skeleton, other: Skeleton) -> bool:
    """Return whether two records are equal to a reader, see the module."""
    if holds_skeleton(one) != holds_skeleton(other):
        return False
    if not holds_skeleton(one):
        return one.reason == other.reason
    return _content(one) == _content(other) and _same_period(one.period_ns, other.period_ns)


def _content(s: Skeleton) -> tuple[object, ...]:
    # The reason may vary with the quality of the traffic; the pairs contain what follows from it.
    return (s.dp, s.pp, s.tp, s.ep, s.cp, s.members, s.pairs)


def _same_period(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return max(one, other) <= SAME_PERIOD * min(one, other)
