"""Claims of broken chains: which member of a loop is blamed."""

import pytest

from localizer.facts.overlay import Break, ChainFault
from localizer.verdict.claims import blame_member
from tests.unit.localizer.made import small_fabric


def loop(*members: str, dst: str = "e1") -> ChainFault:
    """Return a loop that is closed at the first member."""
    return ChainFault(Break.LOOP, members[0], members[1:], dst, 0)


@pytest.mark.parametrize("members", [("r0", "r1"), ("r1", "r0")])
def test_a_loop_is_one_fault_wherever_packets_enter_it(members: tuple[str, str]) -> None:
    """Those from its own hosts close it at one VTEP, those of others at the other."""
    blamed = blame_member(small_fabric(), loop(*members))
    assert (blamed.node, blamed.others) == ("r1", ("r0",))


def test_a_virtual_switch_comes_first() -> None:
    """All loops of a host share its table; of two switches that of the destination's host."""
    assert blame_member(small_fabric(), loop("r0", "v0", "r1")).node == "v0"
    assert blame_member(small_fabric(), loop("v0", "r0", "r1", "v1")).node == "v1"


def test_where_an_entry_is_missing_stays() -> None:
    """Only a loop has members to choose from."""
    fault = ChainFault(Break.MISSING, "r0", (), "e1", 0)
    assert blame_member(small_fabric(), fault) is fault
