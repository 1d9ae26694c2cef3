"""The bench of mutated records: what is bad of a trial, and which records do it again."""

from collections.abc import Sequence

import pytest

from ops.bench.resilience.records import Trial, Trials
from ops.bench.resilience.stage import Cut
from schemas.topics import HEARTBEAT, Topic


def cut(delay_s: float | None = 2.0) -> Cut:
    """Return a cut that was reported after so long."""
    return Cut("link:a--b", 1.0, delay_s, resolved=delay_s is not None)


@pytest.mark.parametrize(
    "trial",
    [
        Trial(cut(None)),
        Trial(cut(5.1)),
        Trial(cut(), ended=["worker"]),
        Trial(cut(), hung=["localizer"]),
        Trial(cut(), silent=["agent-h1"]),
    ],
)
def test_whatever_went_wrong_makes_a_trial_bad(trial: Trial) -> None:
    """A cut that is never reported, or late; a process that ended or hangs; a silent agent."""
    assert not trial.good
    assert Trial(cut(4.9)).good


class Rehearsed(Trials):
    """Trials of which those with a certain record are bad, as often as that record acts."""

    def __init__(self, culprit: str, acts: int) -> None:
        super().__init__(lambda _: None)
        self._culprit = culprit
        self._acts = acts

    def run(self, topic: Topic | None, chosen: Sequence[str] | None = None) -> Trial:
        """Return what comes of some records."""
        del topic
        if chosen is None or self._culprit not in chosen or not self._acts:
            return Trial(cut())
        self._acts -= 1
        return Trial(cut(None))


@pytest.mark.parametrize("culprit", ["a", "d", "g"])
def test_the_record_that_does_it_is_found(culprit: str) -> None:
    """By halves, wherever it stands."""
    assert list(Rehearsed(culprit, 99).culprits(HEARTBEAT, "abcdefg")) == [culprit]


def test_what_does_not_happen_again_has_no_culprit() -> None:
    """A busy machine delayed the verdict."""
    assert not Rehearsed("a", 0).culprits(HEARTBEAT, "abc")
