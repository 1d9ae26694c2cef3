"""A round that may have been here is never called new, and few others are called old."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.columns.rounds import NEVER_NS
from streams.core.starts import EARLIER, is_new, note_start


@given(st.lists(st.integers(0, 40), max_size=60))
def test_new_is_what_is_none_of_the_latest(starts_ns: list[int]) -> None:
    """Of two agents in turns; with the first round begins what is known of an agent."""
    latest_ns = np.full(2, NEVER_NS, np.int64)
    earlier_ns = np.full((2, EARLIER), NEVER_NS, np.int64)
    accepted: list[list[int]] = [[], []]
    for number, started_ns in enumerate(starts_ns):
        agent, own = number % 2, accepted[number % 2]
        kept = sorted((own[:1] * (EARLIER + 1) + own[1:]), reverse=True)[: EARLIER + 1]
        new = not own or (started_ns > kept[-1] and started_ns not in kept)
        assert is_new(latest_ns, earlier_ns, agent, started_ns) == new
        if new:
            assert started_ns not in own
        note_start(latest_ns, earlier_ns, agent, started_ns)
        own.append(started_ns)
        if len(own) > 1:
            known = sorted((own[:1] * (EARLIER + 1) + own[1:]), reverse=True)[: EARLIER + 1]
            assert [int(latest_ns[agent]), *earlier_ns[agent].tolist()] == known
