"""Silences of one switch are one observation, not as many as there are probes."""

from math import isclose, prod

import numpy as np

from localizer.inference.hop_rows import SILENCED_CHANCE, Row, silenced_chances


def test_all_silences_before_the_same_cable_are_as_likely_as_one() -> None:
    """Thirteen probes in two rows, and one probe before another cable."""
    rows: list[Row] = [(True, (0,), (), (5, 6)), (True, (1,), (), (5, 6)), (True, (2,), (), (7,))]
    weight = np.array([12.0, 1.0, 1.0])
    chances = silenced_chances(rows, weight)
    together = prod(chance**count for chance, count in zip(chances[:2], weight[:2], strict=True))
    assert isclose(together, SILENCED_CHANCE)
    assert isclose(chances[2], SILENCED_CHANCE)
