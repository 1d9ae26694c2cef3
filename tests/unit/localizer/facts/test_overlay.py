"""Replay of the forwarding chain."""

import pytest

from localizer.facts import overlay
from localizer.facts.overlay import Break, FlowTables
from schemas.records import FlowEntry, FlowTable
from tests.unit.localizer.made import START, small_fabric


def table(host: str, *hops: str) -> FlowTable:
    """Return a host's table from `node dst next` texts; next `-` is None."""
    entries = []
    for hop in hops:
        node, dst, following = hop.split()
        entries.append(
            FlowEntry(node=node, dst=dst, next_hop=None if following == "-" else following)
        )
    return FlowTable(cluster="lab", host_id=host, captured_at=START // 1000, entries=tuple(entries))


H0 = ("e0 e1 v0", "v0 e1 r0", "r0 e1 r1", "r0 e0 v0", "v0 e0 e0")
H1 = ("e1 e0 v1", "v1 e0 r1", "r1 e0 r0", "r1 e1 v1", "v1 e1 e1")


def tables(h0: tuple[str, ...] = H0, h1: tuple[str, ...] = H1) -> FlowTables:
    """Return both hosts' tables."""
    found = FlowTables(small_fabric())
    found.set_table(table("h0", *h0))
    found.set_table(table("h1", *h1))
    return found


def without(entries: tuple[str, ...], gone: str) -> tuple[str, ...]:
    """Return the entries less the one that begins so."""
    return tuple(e for e in entries if not e.startswith(gone))


def test_a_whole_chain_arrives() -> None:
    """With all entries in place there is nothing to say in either direction."""
    assert tables().replay("e0", "e1") is None
    assert tables().round_trip("e1", "e0") is None


def test_a_missing_entry_is_found_at_its_node() -> None:
    """The node that lacks the entry is named, with the destination."""
    fault = tables(h0=without(H0, "v0 e1")).replay("e0", "e1")
    assert fault is not None
    assert (fault.how, fault.node, fault.dst) == (Break.MISSING, "v0", "e1")


def test_an_entry_without_next_hop_drops() -> None:
    """A null next hop is as good as none."""
    dropping = (*without(H1, "v1 e1"), "v1 e1 -")
    fault = tables(h1=dropping).replay("e0", "e1")
    assert fault is not None
    assert (fault.how, fault.node) == (Break.MISSING, "v1")


def test_the_reply_needs_its_chain_too() -> None:
    """A hole on the way back breaks the round trip of a probe whose request arrives."""
    broken = tables(h1=without(H1, "v1 e0"))
    assert broken.replay("e0", "e1") is None
    fault = broken.round_trip("e0", "e1")
    assert fault is not None
    assert (fault.node, fault.dst) == ("v1", "e0")


def test_a_loop_is_closed_where_a_node_comes_again() -> None:
    """The node that sends back is named, the others of the loop beside it."""
    looping = (*without(H0, "r0 e1"), "r0 e1 v0")
    fault = tables(h0=looping).replay("e0", "e1")
    assert fault is not None
    assert (fault.how, fault.node, fault.others) == (Break.LOOP, "r0", ("v0",))


def test_a_table_that_lost_everything_still_accuses() -> None:
    """A node of a host that was read has no entry left: it is missing, not unknown."""
    fault = tables(h0=("e0 e1 v0",)).replay("e0", "e1")
    assert fault is not None
    assert fault.node == "v0"


def test_tables_that_nobody_read_accuse_nobody() -> None:
    """Where a host's tables are not known, or were withdrawn, the chain ends without a verdict."""
    half = tables()
    half.remove_table("h1")
    assert half.replay("e0", "e1") is None
    assert half.replay("e1", "e0") is None
    assert len(half) == 1


def test_a_table_accuses_nobody_of_a_destination_it_does_not_name() -> None:
    """The host that is probed was never told of the prober: its reply's chain is unknown."""
    silent = tables(h1=tuple(e for e in H1 if e.split()[1] != "e0"))
    assert silent.round_trip("e0", "e1") is None
    dropping = tables(h1=(*(e for e in H1 if e.split()[1] != "e0"), "e1 e0 v1"))
    fault = dropping.round_trip("e0", "e1")
    assert fault is not None
    assert (fault.node, fault.dst) == ("v1", "e0")


def test_a_new_table_replaces_the_old_one() -> None:
    """The entry is back with the next capture, and the version tells of it."""
    found = tables(h0=without(H0, "v0 e1"))
    before = found.version
    found.set_table(table("h0", *H0))
    assert found.replay("e0", "e1") is None
    assert found.version > before


def test_a_table_that_says_the_same_is_no_new_content() -> None:
    """Hosts are read again each half minute: only what changed is a reason to decide."""
    found = tables()
    version, content = found.version, found.content_version
    found.set_table(table("h0", *H0))
    assert (found.version, found.content_version) == (version + 1, content)
    found.set_table(table("h0", *without(H0, "v0 e1")))
    assert found.content_version == content + 1
    found.remove_table("h0")
    found.remove_table("h0")
    assert found.content_version == content + 2


def test_what_a_host_has_lost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come and go, and each had an entry for a destination that stays."""
    monkeypatch.setattr(overlay, "MAX_LOST", 5)
    found = FlowTables(small_fabric())
    for n in range(40):
        found.set_table(table("h0", f"n{n} e1 v0", "v0 e1 r0"))
    assert len(found._tables["h0"].lost) <= 6
    # Those that went last are known.
    assert ("n38", "e1") in found._tables["h0"].lost


def test_a_clock_that_stands_still_remembers_few_evictions() -> None:
    """All entries seem to have left the hardware within the same ten minutes."""
    found = FlowTables(small_fabric())
    for n in range(3 * overlay.MAX_LEFT):
        entry = FlowEntry(node="v0", dst="e1", next_hop="r0", offloaded=n % 2 == 0)
        found.set_table(
            FlowTable(cluster="lab", host_id="h0", captured_at=START // 1000, entries=(entry,))
        )
    (one,) = found.findings("v0")
    assert (one.kind, one.shown) == (
        "repetitive_offload", f"entries left the hardware {overlay.MAX_LEFT} times in ten minutes",
    )  # fmt: skip
