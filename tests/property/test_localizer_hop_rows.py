"""What traces say, kept from decision to decision, is what deriving it anew says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localizer.core import Core
from localizer.inference.hop_rows import HopRows
from localizer.inference.tables import Block
from schemas.enums import AnomalyFamily
from schemas.units import MS_NS
from tests.property.test_localizer_core import CONFIG
from tests.unit.localizer.naive_hops import hop_rows
from tests.unit.localizer.simlab import SimLab, events

SECONDS = 24
LINKS = ("link:leaf:p0-0--spine:0", "link:leaf:p0-1--spine:1", "link:leaf:p1-0--spine:0")
faults = st.lists(
    st.tuples(
        st.sampled_from(LINKS),
        st.sampled_from([(1.0, 0), (0.3, 0), (0.0, 2 * MS_NS)]),
        st.integers(4, 18),
        st.integers(2, 12),
    ),
    min_size=1,
    max_size=3,
)


def parts(block: Block) -> list[Any]:
    """Return all arrays of a block."""
    possible = block.possible
    return [
        block.bad, block.weight, block.lag, block.rows, block.columns,
        possible.rows, possible.columns, possible.chance,
    ]  # fmt: skip


@settings(max_examples=4, deadline=None)
@example([(LINKS[0], (1.0, 0), 6, 9)], 3, SECONDS)
@given(happened=faults, seed=st.integers(0, 99), stranger_s=st.integers(0, SECONDS))
def test_kept_equals_anew_in_every_decision(
    happened: list[tuple[str, tuple[float, int], int, int]], seed: int, stranger_s: int
) -> None:
    """Through faults that begin, overlap and end; of both families, bit for bit.

    The rows of latency are derived of the same 5-tuples as those of loss; others, as if an open
    fault blamed a link that nothing bad may cross.
    """
    lab = SimLab(seed=seed, flows=2, trace_refresh_s=7)
    for second in range(SECONDS):
        lab.effects.links = {
            link: effect
            for link, effect, begin_s, lasts_s in happened
            if begin_s <= second < begin_s + lasts_s
        }
        if second == stranger_s:
            lab.effects.dead.add(lab.shape.agent_ids()[-1])
        lab.run(1)
    compared = compare_decisions(lab)
    assert compared or all(effect[0] < 1 for _, effect, _, _ in happened)


def compare_decisions(lab: SimLab) -> int:
    """Run a localizer; compare what it derives in each decision, and return how many there were."""
    kept = HopRows(AnomalyFamily.LATENCY)
    beside = HopRows(AnomalyFamily.LOSS)
    compared = 0

    def compare(rows: HopRows, *args: Any, **given_: Any) -> Block:
        nonlocal compared
        found = derive(rows, *args, **given_)
        # As if it flapped, and let everything pass now.
        flaps = {**given_, "known": given_["known"] | {LINKS[2]}}
        for family, block, given_so in (
            (AnomalyFamily.LOSS, found, given_),
            (AnomalyFamily.LATENCY, derive(kept, *args, **given_), given_),
            (AnomalyFamily.LOSS, derive(beside, *args, **flaps), flaps),
        ):
            anew = hop_rows(family, *args, **given_so)
            for one, other in zip(parts(block), parts(anew), strict=True):
                np.testing.assert_array_equal(one, other)
        compared += 1
        return found

    derive = HopRows.block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HopRows, "block", compare)
        core = Core(CONFIG)
        for event, _ in events(lab.log):
            if event is not None:
                core.feed(event)
        core.advance(lab.now)
    return compared
