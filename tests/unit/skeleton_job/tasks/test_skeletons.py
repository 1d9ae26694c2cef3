"""Which skeleton stands: the rules against flapping."""

from dataclasses import replace

from schemas.records import Skeleton, SkeletonPair
from skeleton_job.tasks.skeletons import MAX_BELIEFS, CurrentSkeleton

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


class Windows:
    """Windows of 300 s that end every 30 s, offered one after the other."""

    def __init__(self, current: CurrentSkeleton) -> None:
        self.current = current
        self.end_s = 300

    def offer(self, new: Skeleton, *, usable: bool = True) -> Skeleton | None:
        """Offer what the next window infers."""
        self.end_s += 30
        return self.current.offer(
            replace(
                new,
                window_start_at=(self.end_s - 300) * 10**6,
                window_end_at=self.end_s * 10**6,
            ),
            usable=usable,
        )

    def until_published(self, new: Skeleton, most: int = 200) -> int:
        """Offer the same until it is published; return how many windows that took."""
        for count in range(1, most + 1):
            if self.offer(new) is not None:
                return count
        return most + 1


def _published(record: Skeleton, *, start_s: int = 0, end_s: int = 300) -> Windows:
    """Return a job with a published skeleton that rests on one window."""
    return Windows(
        CurrentSkeleton(
            replace(record, version=4, window_start_at=start_s * 10**6, window_end_at=end_s * 10**6)
        )
    )


def test_another_skeleton_must_be_more_probable_over_all_windows() -> None:
    """One that appears now and then never is; one that stays is, once it outweighs the first."""
    windows = _published(SURE)
    for _ in range(40):
        assert windows.offer(OTHER) is None
        assert windows.offer(SURE) is None
        assert windows.offer(SURE) is None
    # It had a third of the evidence before.
    assert 10 <= windows.until_published(OTHER) <= 40
    assert windows.current.skeleton is not None
    assert windows.current.skeleton.version == 5
    assert windows.offer(OTHER) is None


def test_a_surer_window_alone_replaces_nothing() -> None:
    """Overlapping windows rest on the same counters: ten of them are one."""
    windows = _published(SURE)
    surer = replace(OTHER, dp=4, tp=2, confidence=0.97)
    assert windows.until_published(surer) > 5


def test_a_skeleton_of_little_data_gives_way_soon() -> None:
    """A job's first windows are short, so that each next one brings much that is new."""
    current = CurrentSkeleton()
    early = replace(OTHER, dp=4, tp=2, confidence=0.914)
    later = replace(SURE, confidence=0.896)
    assert current.offer(replace(early, window_end_at=30 * 10**6)) is not None
    ends_s = range(60, 600, 30)
    changes = [
        end_s
        for end_s in ends_s
        if current.offer(
            replace(
                later,
                window_start_at=max(0, end_s - 300) * 10**6,
                window_end_at=end_s * 10**6,
            )
        )
    ]
    assert len(changes) == 1
    assert 90 < changes[0] <= 300


def test_another_layout_wins_by_all_its_lists_together() -> None:
    """Joints flicker more than layouts do: lists of one layout count together for it."""
    windows = _published(SURE)
    others = [replace(SURE, dp=4, tp=2, pairs=(SkeletonPair(a="a", b=str(i)),)) for i in range(2)]
    for count in range(100):
        if windows.offer(others[count % 2]) is not None:
            break
    assert 5 < count < 40


def test_another_period_is_a_reason_to_change_sooner() -> None:
    """A job whose iterations have another length may be another job: old evidence fades."""
    steady, changed = _published(SURE), _published(SURE)
    for _ in range(20):
        assert steady.offer(SURE) is None
        assert changed.offer(SURE) is None
    slow = steady.until_published(OTHER)
    soon = changed.until_published(replace(OTHER, period_ns=3_000_000_000))
    assert soon < slow / 3


def test_a_pause_lets_evidence_fade() -> None:
    """What comes after a pause in training may be another layout."""
    steady, paused = _published(SURE), _published(SURE)
    for _ in range(20):
        assert paused.offer(UNSURE) is None
    assert paused.until_published(OTHER) < steady.until_published(OTHER)


def test_few_skeletons_of_a_job_are_remembered() -> None:
    """Lists of large jobs are large, and flicker may bring many."""
    windows = _published(SURE)
    for count in range(50):
        windows.offer(replace(SURE, pairs=(SkeletonPair(a="a", b=str(count)),)))
    beliefs = windows.current._beliefs
    assert sum(map(len, beliefs.values())) == MAX_BELIEFS


def test_a_sure_skeleton_outlives_pauses() -> None:
    """Unsure inferences change nothing, however many."""
    windows = _published(SURE)
    for _ in range(50):
        assert windows.offer(UNSURE) is None
    assert windows.current.skeleton is not None
    assert windows.current.skeleton.dp == 2


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
