"""Who is silent, by arrays and one by one."""

import random

from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.agents import FIRST, SIGNS, Agent, AgentTable, Column
from schemas.units import SECOND_NS


def note(table: AgentTable, name: str, heard_ns: int, interval_ns: int = SECOND_NS) -> None:
    """Note that an agent was heard."""
    first_ns = table.number(name, Column.FIRST_NS) or heard_ns
    table.put(Agent(name, "h", first_ns, heard_ns, heard_ns, interval_ns, 1, 1))


def test_the_same_are_silent_as_one_by_one() -> None:
    """Whoever came, was heard again or went meanwhile; also of more than there was room for."""
    rng = random.Random(1)
    heard, naive = AgentTable(), dict[str, tuple[int, int]]()
    for step in range(4 * FIRST):
        name = f"a{rng.randrange(2 * FIRST)}"
        if rng.random() < 0.2:
            heard.forget(name)
            naive.pop(name, None)
        else:
            naive[name] = step * SECOND_NS, rng.choice([SECOND_NS, 10 * SECOND_NS])
            note(heard, name, *naive[name])
    assert len(naive) > FIRST
    now = 4 * FIRST * SECOND_NS
    for intervals in (0.5, 1.5, 100.0, 2_000.0):
        late = {a for a, (at, every) in naive.items() if (now - at) / every > intervals}
        assert set(heard.silent_for(now, intervals)) == late
        assert len(heard.silent_for(now, intervals)) == len(late)


@given(
    gaps_ms=st.lists(st.integers(0, 4_000), min_size=1, max_size=30),
    since_ms=st.integers(0, 60_000),
    moved=st.booleans(),
)
def test_the_first_sign_after_a_time(gaps_ms: list[int], since_ms: int, *, moved: bool) -> None:
    """As by looking at the last of each second; also once another agent's row has moved away."""
    heard = AgentTable()
    note(heard, "other", SECOND_NS)
    last: dict[int, int] = {}
    at_ns = 10 * SECOND_NS
    for gap_ms in gaps_ms:
        at_ns += gap_ms * SECOND_NS // 1000
        note(heard, "a", at_ns)
        last[at_ns // SECOND_NS % SIGNS] = at_ns
    if moved:
        heard.forget("other")
    since_ns = 10 * SECOND_NS + since_ms * SECOND_NS // 1000
    assert heard.first_after("a", since_ns) == min(
        (one for one in last.values() if one > since_ns), default=None
    )
