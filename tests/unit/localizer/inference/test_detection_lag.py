"""What an agent that has not reported yet says of its 5-tuples: nothing, however many they are."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localizer.inference.detection_lag import LEAST, MOST, Shown, shown_by_now
from schemas.enums import AnomalyFamily
from schemas.units import MS_NS, SECOND_NS
from tests.unit.localizer.made import START

CONFIRM_NS = 500 * MS_NS


@dataclass(frozen=True)
class Cut:
    """A 5-tuple that an agent found cut off, its first loss so many milliseconds after START."""

    prober: str
    onset_ms: int
    cut: bool = True
    open: bool = True

    @property
    def onset_ns(self) -> int:
        """When its first lost probe was sent."""
        return START + self.onset_ms * MS_NS

    @property
    def seen_ns(self) -> int:
        """When its third one was lost."""
        return self.onset_ns + CONFIRM_NS


def shown(flows: list[Cut], after_ms: int, *, alike: float = 8.0) -> Shown:
    """Return the shares so long after START."""
    return shown_by_now(
        AnomalyFamily.LOSS, flows, flows, now_ns=START + after_ms * MS_NS, alike=alike
    )


def test_agents_that_have_reported_say_more_than_others() -> None:
    """Early, who has sent a message clears; the others do once a round has surely passed."""
    flows = [Cut("a", 0), Cut("a", 600), Cut("b", 100)]
    early = shown(flows, 1_250)
    shares = [early.of(agent) for agent in "abc"]
    assert shares == pytest.approx([0.8, 0.3, 0.12], abs=0.005)
    late = shown(flows, 2_900)
    assert late.of("a") == late.of("b") == late.of("c") == MOST["cut"]


def test_all_5_tuples_of_one_silent_agent_say_what_one_does() -> None:
    """It has sent its message or has not: twice as many 5-tuples make that hardly surer."""
    flows = [Cut("a", 0), Cut("b", 100)]
    few, many = (shown(flows, 1_400, alike=alike).of("c") for alike in (4.0, 8.0))
    assert 1.0 - (1.0 - few) ** 4 == pytest.approx(0.7)
    assert 1.0 - (1.0 - many) ** 8 == pytest.approx(0.79, abs=0.002)


def test_what_was_cut_off_for_long_does_not_date_a_fault() -> None:
    """One 5-tuple has been bad for a minute: what began a moment ago is young all the same."""
    flows = [Cut("a", 60_000), Cut("b", 60_100)]
    chronic = Cut("a", 0)
    assert shown([chronic, *flows], 60_700).of("c") == shown(flows, 60_700).of("c") == LEAST


def test_a_brief_cut_that_is_over_dates_a_cut() -> None:
    """Of a fault that opened meanwhile only that one is left: it was no slowly found loss."""
    brief = Cut("a", 0, open=False)
    assert shown([brief], 2_900) == shown([Cut("a", 0)], 2_900)
    assert shown([brief], 2_900).of("b") == MOST["cut"]
    # Beside partial loss it may be of that one.
    lossy = Cut("b", 0, cut=False)
    assert shown([brief, lossy], 2_900).of("b") < 0.5


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3_000)), min_size=1),
    st.integers(0, 10_000),
    st.floats(0.5, 100.0),
)
def test_shares_are_bounded_and_grow(
    cut: list[tuple[str, int]], after_ms: int, alike: float
) -> None:
    """With the same reports, what is not reported a moment later says more."""
    flows = [Cut(agent, onset_ms) for agent, onset_ms in cut]
    now, later = (shown(flows, after, alike=alike) for after in (after_ms, after_ms + 250))
    for agent in "abcd":
        assert LEAST <= now.of(agent) <= later.of(agent) + 1e-12
        assert later.of(agent) <= MOST["cut"]


def test_partial_loss_and_latency_have_one_share_for_all() -> None:
    """Their detectors need many probes: which message they came in does not matter."""
    lossy = [Cut("a", 0, cut=False)]
    assert not shown(lossy, 5_000).heard
    late = shown_by_now(AnomalyFamily.LATENCY, lossy, lossy, now_ns=START + 5 * SECOND_NS)
    assert late.usual == pytest.approx(LEAST + 0.45)
    assert not late.heard
