"""Who is silent, by arrays and one by one."""

import random

from localizer.facts.liveness import FIRST, LastSeen
from schemas.units import SECOND_NS


def test_the_same_are_silent_as_one_by_one() -> None:
    """Whoever came, was heard again or went meanwhile; also of more than there was room for."""
    rng = random.Random(1)
    heard, naive = LastSeen(), dict[str, tuple[int, int]]()
    for step in range(4 * FIRST):
        name = f"a{rng.randrange(2 * FIRST)}"
        if rng.random() < 0.2:
            heard.forget_agent(name)
            naive.pop(name, None)
        else:
            naive[name] = step * SECOND_NS, rng.choice([SECOND_NS, 10 * SECOND_NS])
            heard.record_sign(name, *naive[name])
    assert len(naive) > FIRST
    now = 4 * FIRST * SECOND_NS
    for intervals in (0.5, 1.5, 100.0, 2_000.0):
        late = {a for a, (at, every) in naive.items() if (now - at) / every > intervals}
        assert set(heard.silent_for(now, intervals)) == late
        assert len(heard.silent_for(now, intervals)) == len(late)
