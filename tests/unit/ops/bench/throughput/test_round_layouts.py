"""Layouts of a round that are compared: what comes back, and that their bytes are counted right."""

import io
from typing import Any

import cramjam
import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bench.rig.load import Load, LoadShape
from ops.bench.throughput.layout_parts import TIMES
from ops.bench.throughput.layouts import entropy_bits, layouts, record, stored, varint
from ops.bench.throughput.round_layouts import LAYOUTS, RECORDS, Layout
from schemas.codec import Codec
from schemas.topics import PROBE_ROUND

START_US = 1_790_000_000 * 10**6
SHAPE = LoadShape(agents=2, rnics=2, targets=5, bodies=1, lost=0.02, cut=0.2, late=0, twice=0)


def published() -> list[dict[str, Any]]:
    """Return rounds with losses, as agents publish them."""
    codec, load = Codec(), Load(SHAPE)
    return [codec.decode_datum(PROBE_ROUND, s.value) for s in load.rounds(20, START_US)]


def exact(layout: Layout) -> bool:
    """Whether nothing is rounded."""
    return "(f)" not in layout.name


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_round_comes_back(layout: Layout) -> None:
    """Nothing but order and rounding is lost, losses and nulls included."""
    data = published()
    assert any(r["rtt_ns"] is None for d in data for r in d["results"])
    for datum in data:
        back = layout.decode(layout.encode(datum))
        assert {**back, "results": []} == {**datum, "results": []}
        key = None if layout.ordered else str
        results = [b if key is None else sorted(b, key=key)
                   for b in (back["results"], datum["results"])]  # fmt: skip
        if exact(layout):
            assert results[0] == results[1]
        for mine, theirs in zip(*results, strict=True):
            assert [mine[k] for k in ("src", "dst", "status")] == [
                theirs[k] for k in ("src", "dst", "status")
            ]
            for name in (*TIMES, "sent_offset_ns"):
                assert (mine[name] is None) == (theirs[name] is None)
                if mine[name] is not None:
                    assert 0 <= theirs[name] - mine[name] < 8_192


def test_a_round_without_results_comes_back() -> None:
    """No probe, no median."""
    datum = {**published()[0], "results": []}
    for layout in LAYOUTS:
        assert layout.decode(layout.encode(datum)) == datum


def test_the_contracts_layout_is_the_contracts() -> None:
    """What is compared with is what agents write, byte for byte."""
    for datum in published():
        assert RECORDS.encode(datum) == Codec().encode_datum(PROBE_ROUND, datum)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_written_as_avro_does(number: int) -> None:
    """Zigzag, seven bits a byte."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "long"}, number)
    assert varint(number) == out.getvalue()


def test_a_record_is_as_long_as_it_says() -> None:
    """Kafka's record: length, attributes, two deltas, key, value, no headers."""
    assert record(0, b"key", b"value") == bytes([28, 0, 0, 0, 6, *b"key", 10, *b"value", 0])


def test_bytes_are_those_of_the_batch() -> None:
    """A batch's header is not compressed, and stands once."""
    data = published()[:4]
    results = sum(len(d["results"]) for d in data)
    values = [RECORDS.encode(d) for d in data]
    keys = [d["agent_id"].encode() for d in data]
    each = [record(0, k, v) for k, v in zip(keys, values, strict=True)]

    def encode(some: Any) -> list[bytes]:
        return [RECORDS.encode(d) for d in some]

    assert stored(data, encode, "none") == pytest.approx(sum(61 + len(r) for r in each) / results)
    packed = sum(61 + len(bytes(cramjam.zstd.compress(r, level=3))) for r in each)
    assert stored(data, encode, "zstd 3") == pytest.approx(packed / results)
    assert stored(data, encode, "zstd 3", 4) < stored(data, encode, "zstd 3")


def test_entropy_of_known_distributions() -> None:
    """Uniform over 2^12: 12 bits; normal: log2(sigma) and 2.05 bits."""
    rng = np.random.default_rng(3)
    assert entropy_bits(rng.integers(0, 4_096, 20_000).tolist()) == pytest.approx(12, abs=0.1)
    normal = np.rint(rng.normal(0, 1_000, 20_000)).astype(int).tolist()
    assert entropy_bits(normal) == pytest.approx(np.log2(1_000) + 2.047, abs=0.1)


def test_no_layout_beats_the_entropy() -> None:
    """But for those that round, nobody stores less than what a result says."""
    said: list[str] = []
    rows = {f.figure: f.value for f in layouts(1, said.append, agents=1, rounds=4)}
    bound = rows.pop("entropy of what a result says")
    assert bound is not None
    sizes = {k: v for k, v in rows.items() if "(f)" not in k}
    assert len(sizes) == 2 * (sum(exact(layout) for layout in LAYOUTS) + 2)
    assert all(v is not None and v > bound for v in sizes.values())
    assert any("without rtt_ns" in line for line in said)
