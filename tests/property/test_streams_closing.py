"""What kernels compute of closed windows is what numpy does, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from schemas import avro
from schemas.avro import SchemaVersion, current
from schemas.codec import Codec
from schemas.columns.plan import PlanError
from schemas.framing import ConfluentFramer, Framer, SingleObjectFramer
from streams.columns import closing
from streams.columns.quantities import COLUMNS, COUNT, NONE
from streams.columns.rounds import TRANSPORTS
from streams.columns.slots import MOST, network, slot_values, slotted
from streams.columns.table import NO_ROW, Column, Links, Table
from streams.core.outputs import window_output
from streams.core.window_bytes import TOPIC, WindowBytes
from streams.core.window_records import WindowBatch
from tests.unit.streams.columns.numpy_statistics import window_values


class OneId:
    """A registry that knows every schema by one id."""

    def id_of(self, _schema: SchemaVersion) -> int:
        """Return it."""
        return 77

    def schema_of(self, topic: str, _schema_id: int) -> SchemaVersion:
        """Return today's."""
        return current(topic)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 400),
    rows=st.integers(1, 60),
    largest=st.sampled_from([3, 10**6, 6 * 10**10, 2**50]),
    lost=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_statistics_of_a_window(
    seed: int, count: int, rows: int, largest: int, lost: float
) -> None:
    """Any number of results of a row, ties, lost and unmeasured ones, minutes and nanoseconds."""
    rng = np.random.default_rng(seed)

    def column() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.where(rng.random(count) < lost, -1, rng.integers(0, largest, count))

    of = rng.integers(0, rows, count) * rng.integers(1, 4)
    values = np.array([column() for _ in range(COUNT)])
    for wanted, found in zip(
        window_values(of, values), closing.window_values(of, values), strict=True
    ):
        assert_array_equal(found, wanted)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 4)), max_size=120))
def test_links_are_what_the_keys_say(steps: list[tuple[str, int]]) -> None:
    """Rows come, go and are used again in both tables; a link is never one of another key."""
    source, target = (Table[str]({"n": Column(np.int64, 0)}) for _ in range(2))
    links = Links(source, target)
    for key, step in steps:
        if step == 0:
            source.row(key)
        elif step == 1:
            target.row(key)
        elif step == 2 and source.find(key) is not None:
            source.remove(key)
        elif step == 3 and target.find(key) is not None:
            target.remove(key)
        elif step == 4 and (row := source.find(key)) is not None:
            assert links.make(np.array([row])).tolist() == [target.find(key)]
        rows = source.rows()
        wanted = [target.find(source.key(row)) for row in rows.tolist()]
        assert links.find(rows).tolist() == [NO_ROW if w is None else w for w in wanted]


NAMES = st.text(min_size=1, max_size=30)
KEYS = st.tuples(NAMES, NAMES, NAMES, st.integers(0, 65_535))


@settings(max_examples=120)
@given(
    keys=st.lists(KEYS, unique=True, max_size=30),
    seed=st.integers(0, 2**32),
    start_s=st.integers(0, 4 * 10**9),
    framer=st.sampled_from([SingleObjectFramer(), ConfluentFramer(OneId())]),
)
def test_bytes_of_windows_are_the_codecs(
    keys: list[tuple[str, str, str, int]], seed: int, start_s: int, framer: Framer
) -> None:
    """Any names, counts and statistics, in any framing, again and again, rows used anew."""
    rng = np.random.default_rng(seed)
    codec = Codec(framer)
    encoder = WindowBytes(codec, "c1")
    for _ in range(8):
        n = len(keys)
        # A part of the rows closes in a window, in some order.
        rows = rng.permutation(n)[: rng.integers(0, n + 1)]
        n = len(rows)
        values = rng.integers(0, 2 ** rng.integers(1, 62), (n, len(COLUMNS)))
        values[rng.random(values.shape) < 0.2] = NONE
        sent = rng.integers(1, 10**5, n)
        closed_ms = int(rng.integers(0, 4 * 10**12))
        batch = WindowBatch(
            cluster="c1", start_at=start_s * 10**6, end_at=(start_s + 30) * 10**6,
            closed_ms=closed_ms,
            rows=rows, key_of=keys.__getitem__, values=values, sent=sent, ok=sent // 2,
            repeats=rng.integers(0, 5, n),
            transports=rng.integers(0, len(TRANSPORTS), n).astype(np.int8),
        )  # fmt: skip
        outputs = [window_output(record, closed_ms) for record in batch.records()]
        assert {o.at_ms for o in outputs} <= {closed_ms}
        assert encoder.encode(batch) == (
            [o.key.encode() for o in outputs],
            [codec.encode(o.topic, o.record) for o in outputs],
        )
        # Rows change hands, as they do in `streams.columns.table`.
        for row in rng.permutation(len(keys))[: rng.integers(0, len(keys) + 1)].tolist():
            encoder.forget(row)
            keys[row] = (f"agent{row}", *keys[row][1:])


def test_another_order_of_the_schema_gives_no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather none than one that writes what nobody can read."""
    parsed = dict(current(TOPIC.name).parsed)
    parsed["fields"] = parsed["fields"][::-1]
    schema = replace(current(TOPIC.name), parsed=parsed)
    monkeypatch.setattr(avro, "current", lambda _topic: schema)
    with pytest.raises(PlanError):
        WindowBytes(Codec(), "c1")


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 80),
    slots=st.sampled_from([1, 2, 5, 32, 48]),
    largest=st.sampled_from([1, 10**6, MOST]),
    lost=st.sampled_from([0.0, 0.1, 1.0]),
    alike=st.booleans(),
)
def test_statistics_of_slots(
    seed: int, rows: int, slots: int, largest: int, lost: float, *, alike: bool
) -> None:
    """Planes of slots say what the same results in a list do; many or few of each 5-tuple."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, slots + 1, rows).astype(np.int32)
    counts[rng.random(rows) < 0.3] = 0
    if alike:
        counts[:] = slots
    planes = rng.integers(0, largest, (COUNT, slots, rows), endpoint=True).astype(np.int32)
    planes[rng.random(planes.shape) < lost] = -1
    nth, of = np.nonzero(np.arange(slots)[:, None] < counts)
    for wanted, found in zip(
        window_values(of, planes[:, nth, of].astype(np.int64)),
        slot_values(counts, planes, np.flatnonzero(counts)),
        strict=True,
    ):
        assert_array_equal(found, wanted)


@given(seed=st.integers(0, 2**32), rows=st.integers(0, 50), known=st.integers(0, 50))
def test_rows_of_some_agents(seed: int, rows: int, known: int) -> None:
    """Those that use slots; of further rows the agent is not known, for they use none."""
    rng = np.random.default_rng(seed)
    counts, agent_of = rng.integers(0, 3, rows).astype(np.int32), rng.integers(0, 4, known)
    counts[known:] = 0
    marked = rng.random(4) < 0.5
    wanted = [row for row in range(min(rows, known)) if counts[row] and marked[agent_of[row]]]
    assert slotted(counts, agent_of, marked).tolist() == wanted


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 150),
    slots=st.sampled_from([0, 1, 5, 100]),
    chunks=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    values=st.tuples(st.sampled_from([1, 10**6, MOST]), st.sampled_from([0.0, 0.1, 1.0])),
)
def test_statistics_of_chunks_and_slots(
    seed: int, rows: int, slots: int, chunks: list[int], values: tuple[int, float]
) -> None:
    """Of rows in chunks what lies in both counts; other rows' slots, and rows without, do not."""
    largest, lost = values
    rng = np.random.default_rng(seed)

    def column(shape: int | tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        found = rng.integers(0, largest, shape, endpoint=True)
        found[rng.random(shape) < lost] = -1
        return found

    sizes = [*chunks, closing.LARGE + chunks[0]][: len(chunks) + seed % 2]
    parts = [(rng.integers(0, rows, n), column((COUNT, n))) for n in sizes]
    # Some rows came after the slots were made.
    counts = rng.integers(0, slots + 1, max(1, rows - 3)).astype(np.int32)
    planes = column((COUNT, slots, len(counts))).astype(np.int32)
    whole = np.concatenate([of for of, _ in parts])
    measured = np.concatenate([values for _, values in parts], axis=1)
    nth, of = np.nonzero(np.arange(slots)[:, None] < counts)
    mixed = np.isin(of, whole)
    held = planes[:, nth, of][:, mixed].astype(np.int64)
    together = np.concatenate((whole, of[mixed])), np.concatenate((measured, held), axis=1)
    for wanted, found in zip(
        window_values(*together), closing.chunk_values(parts, counts, planes), strict=True
    ):
        assert_array_equal(found, wanted)


@settings(max_examples=100)
@given(slots=st.integers(1, 128), seed=st.integers(0, 2**32))
def test_the_network_sorts(slots: int, seed: int) -> None:
    """Noughts and ones, which is enough for any values (Knuth, 5.3.4, theorem Z)."""
    values = np.random.default_rng(seed).integers(0, 2, (slots, 200))
    wanted = np.sort(values, axis=0)
    for one, other in network(slots).tolist():
        values[[one, other]] = np.sort(values[[one, other]], axis=0)
    assert_array_equal(values, wanted)
