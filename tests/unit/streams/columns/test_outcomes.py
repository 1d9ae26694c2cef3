"""Results by what became of them: arrays against a list of all results."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.columns.outcomes import (
    BOUNDS_NS,
    SAMPLED,
    STATUSES,
    bucket_of,
    count_outcomes,
    move_outcomes,
    no_outcomes,
)
from streams.columns.rounds import TRANSPORTS, round_columns
from tests.unit.streams.worlds import round_datum

RESULTS = st.lists(
    st.tuples(
        st.sampled_from(STATUSES),
        st.sampled_from(TRANSPORTS),
        st.one_of(st.none(), st.integers(-5, 2 * 10**9), st.sampled_from(BOUNDS_NS)),
    ),
    max_size=30,
)


@given(results=RESULTS, seq=st.integers(0, 40))
def test_every_result_is_counted_once(results: list[tuple[str, str, int | None]], seq: int) -> None:
    """By its status, and one in some by its round trip; an OK without one is UNKNOWN."""
    datum = round_datum(
        [
            {
                "src": "a", "dst": "b", "flow": 0, "sent_offset_ns": 0, "transport": transport,
                "status": status, "rtt_ns": rtt_ns, "prober_delay_ns": None,
                "responder_delay_ns": None, "clock": "SOFTWARE",
            }
            for status, transport, rtt_ns in results
        ],
        10**18,
        seq,
    )  # fmt: skip
    outcomes, total = no_outcomes(), no_outcomes()
    count_outcomes(outcomes, round_columns(datum), seq)
    move_outcomes(outcomes, total)
    move_outcomes(outcomes, total)
    statuses = Counter(
        "UNKNOWN" if status == "OK" and rtt_ns is None else status for status, _, rtt_ns in results
    )
    assert dict(zip(STATUSES, total.statuses.tolist(), strict=True)) == {
        status: statuses[status] for status in STATUSES
    }
    for code, transport in enumerate(TRANSPORTS):
        rtts = [
            max(rtt_ns, 0)
            for status, of, rtt_ns in results[seq % SAMPLED :: SAMPLED]
            if status == "OK" and of == transport and rtt_ns is not None
        ]
        assert total.sum_ns[code] == sum(rtts)
        below = np.cumsum(total.round_trips[code]).tolist()
        assert below == [sum(r <= bound for r in rtts) for bound in (*BOUNDS_NS, 2**62)]


def test_a_bound_belongs_to_its_bucket() -> None:
    """As Prometheus reads `le`."""
    for number, bound_ns in enumerate(BOUNDS_NS):
        assert bucket_of(bound_ns) == number
        assert bucket_of(bound_ns + 1) == number + 1
