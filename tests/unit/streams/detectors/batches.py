"""Closed windows for tests of detectors."""

import numpy as np

from schemas.enums import Transport
from streams.columns.quantities import NONE, OBSERVED
from streams.columns.rounds import TRANSPORT_CODES, FlowKey
from streams.core.history import PublishedFlows
from streams.detectors.base import FeatureBatch

Features = np.ndarray[tuple[int, int], np.dtype[np.int64]]
KEYS: list[FlowKey] = [("agent", "a", f"b{n}", 0) for n in range(400)]


def batch(
    index: int,
    features_ns: Features,
    *,
    delay_ns: int = NONE,
    answers: int = 30,
    transport: Transport = Transport.UDP,
    keys: list[FlowKey] = KEYS,
) -> FeatureBatch:
    """Return one window of each of the first 5-tuples, from features of shape (5-tuples, 7)."""
    count = len(features_ns)
    return FeatureBatch(
        index=index,
        flows=PublishedFlows(keys),
        numbers=np.arange(count),
        features_ns=features_ns,
        sent=np.full(count, answers),
        answers=np.full(count, answers),
        medians_ns=np.full((count, len(OBSERVED)), delay_ns, np.int64),
        transports=np.full(count, TRANSPORT_CODES[transport]),
    )
