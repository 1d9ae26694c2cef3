"""What a reader remembers takes no more memory than it may, and enough of it fits."""

import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest

from localizer.collectives import remembered
from localizer.collectives.batch_reader import _Sender
from localizer.collectives.rank_batch import Who
from localizer.collectives.remembered import Known, SharedNames, memory_of
from schemas.records.batches import Signature, Tables

WRITER: Final = 140_000_000_000_000


def sender(rank: int, job: str, names: tuple[str, ...], order: int = 0) -> tuple[bytes, _Sender]:
    """Return what a rank says again and again, as bytes and as what it means."""
    rank_id, host_id, endpoint = f"{job}|{rank}", f"{job}-host-{rank // 8}", f"{job}-w/r{rank}"
    who = Who("c", rank_id, job, rank, None, host_id, (endpoint,))
    turned = names[order:] + names[:order]
    return "".join(("c", rank_id, job, host_id, endpoint, *turned)).encode(), _Sender(who, turned)


def shortest(number: int) -> tuple[bytes, object]:
    """Return as few bytes as the bounds allow."""
    return sender(number, "j", ())


def usual(number: int) -> tuple[bytes, object]:
    """Return names as real jobs have them."""
    return sender(number, "pretrain-70b-x7", tuple(f"{c}_dp_group_{number}" for c in range(5)))


def tables(number: int) -> tuple[bytes, object]:
    """Return tables of which each byte on the wire is a signature or a reference."""
    signature = Signature(f"{number}", ((),) * 50, ((),) * 50, (), ())
    stack = (f"frame {number}",) * 50
    return f"{number:0>200}".encode(), Tables((signature,) * 20, (stack,) * 20, ())


@pytest.mark.parametrize("made", [shortest, usual, tables])
def test_what_is_known_takes_no_more_memory_than_it_may(
    monkeypatch: pytest.MonkeyPatch, made: Callable[[int], tuple[bytes, object]]
) -> None:
    """However short the bytes are of which it is remembered what they mean."""
    monkeypatch.setattr(remembered, "MAX_KNOWN_BYTES", 2_000_000)
    known: Known[object] = Known()
    made(0)
    tracemalloc.start()
    try:
        for number in range(8_000):
            known.put(WRITER + number, *made(number))
            assert tracemalloc.get_traced_memory()[0] < 2_100_000
        # No more is forgotten than must be.
        assert tracemalloc.get_traced_memory()[0] > 1_000_000
    finally:
        tracemalloc.stop()
    assert 0 < len(known) < 8_000


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put again stays where it is: it means the same."""
    monkeypatch.setattr(remembered, "MAX_KNOWN_BYTES", 10_000)
    known: Known[int] = Known()
    for number in range(100):
        known.put(1, b"%d" % number, number)
        known.put(1, b"%d" % number, -1)
    found = [known.get(1, b"%d" % number) for number in range(100)]
    assert found == [None] * (100 - len(known)) + list(range(100 - len(known), 100))
    assert 10 < len(known) < 50
    assert known.get(2, b"99") is None


def test_all_that_ten_thousand_ranks_say_is_known() -> None:
    """Each names its communicators in some orders; if the oldest were forgotten, none was found."""
    known: Known[_Sender] = Known()
    ranks, job = 10_240, "pretrain-70b-x7"
    names = [
        (f"tp_group_{n // 8}", f"dp_group_{n % 64}", f"pp_group_{n // 64}", "default_pg", "ep")
        for n in range(ranks)
    ]
    for order in range(5):
        for rank in range(ranks):
            known.put(WRITER, *sender(rank, job, names[rank], order))
    assert len(known) == 5 * ranks
    assert known._bytes < 0.8 * remembered.MAX_KNOWN_BYTES


def test_equal_names_are_one_object_while_few_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a flood are forgotten, and whoever holds one keeps it."""
    monkeypatch.setattr(remembered, "MAX_NAMES_BYTES", 100_000)
    names = SharedNames()
    kept = names.shared("".join(["rank", "-1"]))
    assert names.shared("".join(["rank", "-1"])) is kept
    for number in range(10_000):
        name = f"unknown-{number}"
        assert names.shared(name) is name
        assert len(names) < 500
    assert names.shared("".join(["rank", "-1"])) == kept


def test_what_is_held_twice_counts_once() -> None:
    """Ranks' stacks have most of their frames in common."""
    frame = "f" * 1_000
    once, twice = memory_of((frame,)), memory_of((frame, frame))
    assert 0 < twice - once < 100
    assert memory_of(Tables((), ((frame,),), ())) > 1_000
