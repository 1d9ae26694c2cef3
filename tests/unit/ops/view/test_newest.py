"""The newest items of a stream."""

import random

from ops.view.newest import Newest


def test_the_newest_are_kept_whatever_the_order() -> None:
    """What must be kept is there after any order, and the room is bounded."""
    items = [(n, n // 3) for n in range(500)]
    for seed in range(20):
        random.Random(seed).shuffle(items)
        kept: Newest[int, str] = Newest(40)
        for key, at_ms in items:
            kept.put(key, at_ms, str(key))
        assert len(kept) <= 50
        assert set(range(460, 500)) <= {key for key, _ in kept.items()}
        assert kept.dropped == 500 - len(kept)


def test_a_copy_changes_by_itself() -> None:
    """Neither sees what the other gets."""
    one: Newest[str, int] = Newest(10)
    one.put("a", 1, 1)
    other = one.copy()
    other.put("b", 2, 2)
    one.remove("a")
    assert (sorted(one.values()), sorted(other.values())) == ([], [1, 2])
