"""Which skeleton stands: no flapping between two inferences of nearly equal worth.

* Nothing stands: the first inference is published, whatever it says.
* An unsure one stands: a sure one replaces it at once; another unsure one if it
  gives the same other reason twice in a row.
* A sure one stands: only a sure one replaces it, if it says the same other thing
  twice in a row. An unsure one changes nothing: a pause in training, a
  checkpoint or lost counters do not make the skeleton wrong.

"Other" is what a reader would act on: the members' places, pairs and degrees,
or the reason; not the confidence, the window, nor a period within 10 %.
"""

from dataclasses import replace
from typing import Final

from schemas.records import Skeleton

# A period within this ratio is the same; iterations jitter and drift.
SAME_PERIOD: Final = 1.1


class Standing:
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
