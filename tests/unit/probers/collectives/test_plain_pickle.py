"""Pickles are read without running what they hold."""

import os
import pickle
import struct
from typing import Any

import pytest

from probers.collectives.plain_pickle import MAX_DEPTH, PickleError, load_plain

PLAIN = {
    "entries": [{"a": 1, "b": -7, "c": 2**40, "d": [[64, 64], []], "e": ("x", "")}],
    "f": None,
    "g": True,
    "h": False,
    "i": 1.5,
    "j": -(2**63),
    7: 300,
    "k": (),
    "l": (1, 2, 3, 4),
    "m": "é" * 300,
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_what_pickle_reads(protocol: int) -> None:
    """Of all binary protocols."""
    assert load_plain(pickle.dumps(PLAIN, protocol)) == PLAIN


class Runs:
    """Its pickle calls `os.system`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("echo run > /dev/null",))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_runs_code_is_refused(protocol: int) -> None:
    """Before anything is looked up."""
    with pytest.raises(PickleError, match=r"would run code \(.*GLOBAL\): refused"):
        load_plain(pickle.dumps({"version": "2.10", "entries": [Runs()]}, protocol))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x02ios\nsystem\n.", r"run code \(INST\)"),
        (b"\x80\x02}\x85R.", r"run code \(REDUCE\)"),
        (b"\x80\x02}}b.", r"run code \(BUILD\)"),
        (b"\x80\x02\x82\x01.", r"run code \(EXT1\)"),
        (b"\x80\x02Psome\n.", r"run code \(PERSID\)"),
        (b"\x80\x02NQ.", r"run code \(BINPERSID\)"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "not one of plain values"),
        (b"\x80\x02X" + struct.pack("<I", 2**31) + b"abc.", "cut short"),
        (b"\x80\x02h\x05.", "names a value that it does not hold"),
        (b"\x80\x02N", "cut short"),
        (b"\x80\x02.", "one value"),
        (b"\x80\x02NN.", "one value"),
        (b"\x80\x02(N.", "one value"),
        (b"\x80\x02e.", "did not begin"),
        (b"\x80\x02Na.", "cut short or damaged"),
        (b"\x80\x02NNa.", "appends to what is no list"),
        (b"\x80\x02NNNs.", "no dictionary"),
        (b"\x80\x02}]Ns.", "neither text nor integer"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "not UTF-8"),
        (b"\x80\x02\x8a\x09" + b"\x01" * 9 + b".", "more than 64 bits"),
        (b"\x80\x02]q\x00h\x00a.", "nests deeper"),
        (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", f"deeper than {MAX_DEPTH}"),
    ],
)
def test_what_is_no_plain_pickle_is_refused_in_a_sentence(content: bytes, said: str) -> None:
    """Whatever is wrong."""
    with pytest.raises(PickleError, match=said):
        load_plain(content)


def test_a_memo_index_allocates_nothing() -> None:
    """`pickle.Unpickler` would take 64 GB for this one."""
    assert load_plain(b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".") is None


def test_the_number_of_values_is_bounded() -> None:
    """A megabyte of empty dictionaries is more memory than a dump needs."""
    with pytest.raises(PickleError, match="more than 100 values"):
        load_plain(b"\x80\x02(" + b"}" * 1000 + b"l.", max_values=100)


def test_values_that_are_named_many_times_do_not_multiply() -> None:
    """Thirty lists, each holding the one before twice, are thirty lists."""
    content = b"\x80\x02]" + b"".join(
        b"q" + bytes([n]) + b"0]h" + bytes([n]) + b"ah" + bytes([n]) + b"a" for n in range(30)
    )
    with pytest.raises(PickleError, match="not one of plain values"):
        load_plain(content + b".")
    content = b"\x80\x02(]q\x00" + b"".join(
        b"(h" + bytes([n]) + b"h" + bytes([n]) + b"lq" + bytes([n + 1]) for n in range(30)
    )
    assert len(load_plain(content + b"l.")) == 31
