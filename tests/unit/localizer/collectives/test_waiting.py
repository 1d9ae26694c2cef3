"""Where the waiting ends does not depend on how a process hashes names."""

import pytest

from localizer.collectives.waiting import Edge, Gate, Opening, Place, Wait, ends_of
from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import Rank

OPERATION = read_dump(Rank(0, {"0": [0]}).launch("0").pickled(), "d0").snapshot.operations[0]


@pytest.mark.parametrize("number", range(8))
def test_the_first_rank_behind_a_gate_is_told_with_all_that_wait_there(number: int) -> None:
    """By the order of waits: ranks 0 and 1 wait in two groups, and 11 is behind in both."""
    gates = [Gate(f"group {number} {side}", 0) for side in "ab"]
    waits: list[Edge] = [
        Wait(rank, gate, Place(gate.group, 0), OPERATION, sure=True)
        for rank in (0, 1)
        for gate in gates
    ]
    behind = [(10, 11), (11, 12)]
    waits += [
        Opening(gate, rank, sure=True)
        for gate, ranks in zip(gates, behind, strict=True)
        for rank in ranks
    ]
    told = {
        end.nodes: sorted((wait.place.group[-1], wait.waiter) for wait in end.waits)
        for end in ends_of(waits)
    }
    assert told == {
        (10,): [("a", 0), ("a", 1)],
        (11,): [("a", 0), ("b", 0), ("b", 1)],
        (12,): [("b", 0)],
    }
