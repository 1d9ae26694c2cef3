"""From an inference to the published skeleton.v1 record, without flapping.

`to_record` builds the record. A record without degrees is empty: it holds only the reason why
nothing could be inferred. `CurrentSkeleton` decides whether a record replaces the published one:

* Nothing is published: the first record is published, whatever it contains.
* An empty one is published: a skeleton replaces it at once; another empty one does if it gives the
  same new reason twice in a row.
* A skeleton is published: another one replaces it only if all windows together make it more
  probable. Each window counts for what it infers, by its confidence and by the share of its
  counters that no earlier window had. What is three windows old counts a third. Evidence for the
  published one fades faster after a pause, and while the iterations have another period, since then
  the job may have changed; if the job's members changed, none is left. Empty records change
  nothing: a pause in training, a checkpoint or lost counters do not make the skeleton wrong.
* Only the period changed: the new one is published if it is inferred twice in a row.

Two records are equal if a reader would act alike: the same places, pairs and degrees of the
members, or the same reason. Confidence, window, and a period within 10 % do not count.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final

from schemas.records import Skeleton, SkeletonMember, SkeletonPair
from skeleton_job.job import Job
from skeleton_job.layout.skeleton import DEFAULT_MIN_CONFIDENCE, Inference

# Periods within this ratio are the same; iterations jitter and drift.
SAME_PERIOD: Final = 1.1
# Windows after which evidence counts 1/e as much, and the same in a pause.
MEMORY_WINDOWS: Final = 3.0
MEMORY_IN_PAUSE: Final = 1.0
# Factor at each window in which the iterations have another period.
OTHER_PERIOD_FADE: Final = 0.5
# Nats by which another skeleton must be more probable than the published one.
BETTER_NATS: Final = 1.0
# Skeletons remembered for each job.
MAX_BELIEFS: Final = 4
# A single window never says more than odds of 1 to 100, and a skeleton always something.
MAX_NATS: Final = math.log(100)
MIN_NATS: Final = 0.1


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
        pairs=tuple(SkeletonPair(a=a, b=b) for a, b in sorted(inference.pairs | inference.hedges)),
    )


@dataclass(slots=True)
class _Belief:
    """The evidence for one skeleton, in nats, and the latest record that holds it."""

    record: Skeleton
    nats: float = 0.0


class CurrentSkeleton:
    """The published skeleton of one job, and the evidence for it and for others."""

    def __init__(self, skeleton: Skeleton | None = None) -> None:
        self.skeleton = skeleton
        self._candidate: Skeleton | None = None
        self._lost = False
        # By layout and by pairs; the end of the counters that they rest on.
        self._beliefs: dict[Hashable, dict[Hashable, _Belief]] = {}
        self._seen_until_at = 0
        if skeleton is not None:
            self._observe(skeleton, self._new_share(skeleton))

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
        share = self._new_share(new)
        if not usable:
            self._beliefs.clear()
        self._observe(new, share)
        if old is None:
            return self._publish(replace(new, version=1))
        holds = holds_skeleton(old) and usable
        if self._lost:
            chosen: Skeleton | None = old if holds and not holds_skeleton(new) else new
        elif holds_skeleton(new):
            chosen = self._better(old, new) if holds else new
        else:
            chosen = None if holds else self._if_repeated(old, new)
        if chosen is None:
            return None
        return self._publish(replace(chosen, version=old.version + 1))

    def failed(self) -> None:
        """Note that the current one was not delivered: the next offer publishes again."""
        self._lost = True

    def _new_share(self, new: Skeleton) -> float:
        """Return which share of a window's counters no earlier window had."""
        fresh = new.window_end_at - max(new.window_start_at, self._seen_until_at)
        self._seen_until_at = max(self._seen_until_at, new.window_end_at)
        return max(0.0, fresh / max(1, new.window_end_at - new.window_start_at))

    def _observe(self, new: Skeleton, share: float) -> None:
        """Let older evidence fade, and add what one window says."""
        holds = holds_skeleton(new)
        fade = math.exp(-share / (MEMORY_WINDOWS if holds else MEMORY_IN_PAUSE))
        for belief in (b for of in self._beliefs.values() for b in of.values()):
            same = not holds or _same_period(belief.record.period_ns, new.period_ns)
            belief.nats *= fade if same else fade * OTHER_PERIOD_FADE
        if holds:
            odds = new.confidence / max(1e-9, 1.0 - new.confidence)
            nats = min(MAX_NATS, max(MIN_NATS, math.log(max(1e-9, odds))))
            beliefs = self._beliefs.setdefault(_layout(new), {})
            belief = beliefs.setdefault(new.pairs, _Belief(new))
            belief.record = new
            belief.nats += share * nats
            self._forget_weakest(new)

    def _forget_weakest(self, new: Skeleton) -> None:
        """Keep `MAX_BELIEFS` records: those of large jobs are large."""
        of = [(b.nats, layout, pairs) for layout, beliefs in self._beliefs.items()
              for pairs, b in beliefs.items() if b.record is not new]  # fmt: skip
        for _, layout, pairs in sorted(of, key=lambda row: -row[0])[MAX_BELIEFS - 1 :]:
            del self._beliefs[layout][pairs]
            if not self._beliefs[layout]:
                del self._beliefs[layout]

    def _better(self, old: Skeleton, new: Skeleton) -> Skeleton | None:
        """Return the skeleton to replace a published one; None if it stays."""
        best = self._best(old)
        if best is not None:
            return best
        # Only the period may have changed.
        return self._if_repeated(old, new if _content(old) == _content(new) else old)

    def _if_repeated(self, old: Skeleton, new: Skeleton) -> Skeleton | None:
        """Return a record that differs to a reader if it was the last candidate, too."""
        if same_to_reader(old, new):
            self._candidate = None
            return None
        candidate, self._candidate = self._candidate, new
        return new if candidate is not None and same_to_reader(candidate, new) else None

    def _best(self, old: Skeleton) -> Skeleton | None:
        """Return the skeleton that is more probable than the published one, None without any."""
        total = {layout: sum(b.nats for b in of.values()) for layout, of in self._beliefs.items()}
        layout = max(total, key=lambda key: total[key])
        best = max(self._beliefs[layout].values(), key=lambda b: b.nats)
        if layout != _layout(old):
            more = total[layout] - total.get(_layout(old), 0.0)
        else:
            known = self._beliefs[layout].get(old.pairs)
            more = best.nats - (0.0 if known is None else known.nats)
        return best.record if more >= BETTER_NATS else None

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


def _layout(s: Skeleton) -> Hashable:
    # The reason may vary with the quality of the traffic; the pairs contain what follows from it.
    return s.dp, s.pp, s.tp, s.ep, s.cp, s.members


def _content(s: Skeleton) -> Hashable:
    return _layout(s), s.pairs


def _same_period(one: int | None, other: int | None) -> bool:
    if one is None or other is None:
        return one is other
    return max(one, other) <= SAME_PERIOD * min(one, other)
