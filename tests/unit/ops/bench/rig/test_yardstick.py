"""The fixed work takes what it takes, again and again."""

import pytest

from ops.bench.rig import yardstick


def test_the_same_work_takes_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a factor that no other machine of these years makes up, also on a busy one."""
    monkeypatch.setattr(yardstick, "RECORDS", 150_000)
    monkeypatch.setattr(yardstick, "VALUES", 1_000_000)
    first_s, second_s = yardstick.yardstick_s(), yardstick.yardstick_s()
    assert 0.2 < first_s / second_s < 5
