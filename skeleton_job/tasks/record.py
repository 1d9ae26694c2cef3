"""An inference as a skeleton.v1 record."""

from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE, Inference


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
