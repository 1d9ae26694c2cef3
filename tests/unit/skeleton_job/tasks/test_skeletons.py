"""Which skeleton stands: the rules against flapping."""

from dataclasses import replace

from schemas.records import Skeleton, SkeletonPair
from skeleton_job.tasks.skeletons import CurrentSkeleton

UNSURE = Skeleton(
    cluster="lab",
    task_id="j",
    version=0,
    window_start_at=0,
    window_end_at=1,
    confidence=0.1,
    reason="flat",
    members=(),
    pairs=(),
)
SURE = replace(UNSURE, confidence=0.9, reason=None, dp=2, pp=2, tp=4, period_ns=2_000_000_000)
OTHER = replace(SURE, pairs=(SkeletonPair(a="a", b="b"),))


def test_the_first_inference_is_published_whatever_it_says() -> None:
    """An operator sees why there is no skeleton yet."""
    published = CurrentSkeleton().offer(UNSURE)
    assert published is not None
    assert published.version == 1


def test_a_sure_one_replaces_an_unsure_one_at_once() -> None:
    """The basic list ends as soon as the skeleton is known."""
    standing = CurrentSkeleton(replace(UNSURE, version=4))
    published = standing.offer(SURE)
    assert published is not None
    assert (published.version, published.dp) == (5, 2)


def test_what_says_the_same_is_not_published() -> None:
    """Confidence, window, a reason and a slightly other period change nothing to a reader."""
    standing = CurrentSkeleton(replace(SURE, version=4))
    again = replace(SURE, confidence=0.8, window_end_at=9, period_ns=2_150_000_000, reason="x")
    assert standing.offer(again) is None
    assert standing.offer(again) is None
    assert CurrentSkeleton(UNSURE).offer(replace(UNSURE, confidence=0.3)) is None


def test_another_skeleton_must_come_twice_in_a_row() -> None:
    """One that appears once, or alternates, never gets published."""
    standing = CurrentSkeleton(replace(SURE, version=4))
    for _ in range(5):
        assert standing.offer(OTHER) is None
        assert standing.offer(SURE) is None
    third = replace(OTHER, dp=4)
    for _ in range(5):
        assert standing.offer(OTHER) is None
        assert standing.offer(third) is None
    assert standing.offer(OTHER) is None
    published = standing.offer(OTHER)
    assert published is not None
    assert published.version == 5
    assert standing.offer(OTHER) is None


def test_a_sure_skeleton_outlives_pauses() -> None:
    """Unsure inferences change nothing, however many; they also break a rival's row."""
    standing = CurrentSkeleton(replace(SURE, version=4))
    for _ in range(5):
        assert standing.offer(UNSURE) is None
    assert standing.offer(OTHER) is None
    assert standing.offer(UNSURE) is None
    assert standing.offer(OTHER) is None
    assert standing.skeleton is not None
    assert standing.skeleton.dp == 2


def test_another_reason_must_come_twice_too() -> None:
    """A flickering reason is no news."""
    standing = CurrentSkeleton(replace(UNSURE, version=2))
    idle = replace(UNSURE, reason="idle")
    assert standing.offer(idle) is None
    assert standing.offer(UNSURE) is None
    assert standing.offer(idle) is None
    published = standing.offer(idle)
    assert published is not None
    assert published.version == 3


def test_a_much_longer_iteration_is_news() -> None:
    """The period is part of what is published; a change beyond 10 % counts."""
    standing = CurrentSkeleton(SURE)
    slower = replace(SURE, period_ns=3_000_000_000)
    assert standing.offer(slower) is None
    assert standing.offer(slower) is not None


def test_a_skeleton_that_does_not_fit_the_job_is_replaced_at_once() -> None:
    """After the job changed, the first sure inference counts, even if it says the same."""
    standing = CurrentSkeleton(replace(SURE, version=4))
    published = standing.offer(SURE, usable=False)
    assert published is not None
    assert published.version == 5


def test_a_lost_record_is_published_again() -> None:
    """With a version above the lost one, and what stood if the new one is unsure."""
    standing = CurrentSkeleton()
    first = standing.offer(SURE)
    assert first is not None
    standing.failed()
    again = standing.offer(UNSURE)
    assert again is not None
    assert (again.version, again.dp) == (2, 2)
    assert standing.offer(SURE) is None
