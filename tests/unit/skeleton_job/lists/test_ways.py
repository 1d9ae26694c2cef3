"""Pairs without an entry in flow tables."""

import pytest

from schemas.records import FlowEntry, FlowTable
from skeleton_job.lists import ways
from skeleton_job.lists.ways import Ways


def table(host: str, *entries: str) -> FlowTable:
    """Return a host's table from `node dst` texts; next hops do not matter here."""
    return FlowTable(
        cluster="lab",
        host_id=host,
        captured_at=1,
        entries=tuple(
            FlowEntry(node=node, dst=dst, next_hop="v")
            for node, dst in (entry.split() for entry in entries)
        ),
    )


# Two rails: each endpoint has entries on its own rail only.
H0 = ("a0 b0", "a0 c0", "a1 b1", "v0 a0", "v0 a1", "v0 b0", "v0 b1", "v0 c0")


def test_an_endpoint_lacks_destinations_that_its_host_knows() -> None:
    """In either direction; of what the table does not name, nothing is known."""
    known = Ways()
    assert known.set_table("h0", table("h0", *H0)) == {"a0", "a1"}
    assert known.lacks("a0", "b1")
    assert known.lacks("b0", "a1")
    assert not known.lacks("a0", "b0")
    assert not known.lacks("a0", "d1")
    assert not known.lacks("b0", "b1")
    assert known.set_table("h0", table("h0", *H0)) == set()


def test_an_entry_that_was_there_is_not_lacked() -> None:
    """It is gone by a fault, and stays so with each further table."""
    known = Ways()
    known.set_table("h0", table("h0", *H0))
    for _ in range(3):
        known.set_table("h0", table("h0", *(e for e in H0 if e != "a0 b0")))
        assert not known.lacks("a0", "b0")
        assert known.lacks("a0", "b1")


def test_an_entry_that_comes_and_goes_is_not_lacked() -> None:
    """What was there once has a way."""
    known = Ways()
    known.set_table("h0", table("h0", *H0))
    known.set_table("h0", table("h0", *H0, "a0 b1"))
    assert not known.lacks("a0", "b1")
    known.set_table("h0", table("h0", *H0))
    assert not known.lacks("a0", "b1")


def test_a_table_that_is_gone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one beyond the bound."""
    known = Ways()
    known.set_table("h0", table("h0", *H0))
    assert known.set_table("h0", None) == {"a0", "a1"}
    assert not known.lacks("a0", "b1")
    monkeypatch.setattr(ways, "MAX_HOST_PAIRS", 1)
    assert known.set_table("h0", table("h0", *H0)) == set()
    assert not known.lacks("a0", "b1")
