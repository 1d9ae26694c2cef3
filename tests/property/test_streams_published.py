"""The kernel reads published windows as fastavro does, whatever the bytes."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import avro, topics
from schemas.avro import load_version
from schemas.codec import Codec
from schemas.columns.interpreter import NULL
from schemas.columns.plan import make_plan
from schemas.enums import Transport
from schemas.records import PathWindow
from streams.core.published import WINDOWS, KernelReader, PublishedReader, WindowColumns

CODEC = Codec()
CLUSTER = "lab"
STATISTICS = (
    "p25_ns", "p50_ns", "p75_ns", "p90_ns", "p99_ns", "min_ns", "mean_ns", "std_ns", "max_ns",
    "host_delay_p50_ns", "responder_delay_p50_ns",
)  # fmt: skip
names = st.sampled_from(["a", "agent-1", "h0/r0", "h1/r1", "räck/r0", ""])
numbers = st.integers(0, 6 * 10**10) | st.integers(0, 10**6)
wild = st.integers(-(2**62), 2**62)
nullable = st.none() | numbers
within = st.builds(
    PathWindow,
    cluster=st.sampled_from([CLUSTER, CLUSTER, CLUSTER, "other"]),
    path_id=names,
    src=names,
    dst=names,
    flow=st.integers(0, 3) | st.just(65_535),
    agent_id=names,
    transport=st.sampled_from(Transport),
    window_start_at=numbers,
    window_end_at=numbers,
    sent=numbers,
    ok=numbers,
    lost=numbers,
    duplicate_results=numbers,
    **dict.fromkeys(STATISTICS, nullable),
    producer_version=st.sampled_from([None, "0.1.0", "ä"]),
)  # fmt: skip
# A few with numbers that no worker writes.
windows = within | within | st.builds(replace, within, sent=wild, max_ns=wild, window_end_at=wild)


class Both:
    """Both readers, and what they could not decode."""

    def __init__(self) -> None:
        self.undecodable: list[list[str]] = [[], []]
        self.slow = PublishedReader(CODEC, CLUSTER, self._noted(0), lambda key: key)
        self.fast = KernelReader(CODEC, CLUSTER, self._noted(1), lambda key: key)

    def _noted(self, which: int) -> Any:
        return lambda error: self.undecodable[which].append(str(error))

    def check(self, values: list[bytes]) -> None:
        """Read by both."""
        assert shown(self.fast.read(values)) == shown(self.slow.read(values))
        # New 5-tuples are looked at after the others.
        assert sorted(self.undecodable[1]) == sorted(self.undecodable[0])


def shown(columns: WindowColumns) -> list[tuple[Any, ...]]:
    """Return keys and values, whatever the numbers."""
    return [
        (columns.key(place), *columns.values[:, place].tolist()) for place in range(len(columns))
    ]


def encoded(found: list[PathWindow]) -> list[bytes]:
    """Return the messages."""
    return [CODEC.encode(topics.PROBE_WINDOW, window) for window in found]


@settings(max_examples=60)
@given(st.lists(st.lists(windows, max_size=12), min_size=1, max_size=3))
def test_kernel_reads_what_fastavro_reads(parts: list[list[PathWindow]]) -> None:
    """All fields, nulls, other clusters, in their order; a second time as well."""
    both = Both()
    for part in [*parts, *parts]:
        both.check(encoded(part))


@settings(max_examples=150)
@given(st.lists(windows, min_size=1, max_size=4), st.data())
def test_hostile_bytes_are_left_to_fastavro(found: list[PathWindow], data: st.DataObject) -> None:
    """Truncated, lengthened or changed anywhere: the same windows, the same complaints."""
    both, values = Both(), encoded(found)
    both.check(values)
    for number, value in enumerate(values):
        raw = bytearray(value)
        for _ in range(data.draw(st.integers(0, 2))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(raw)))
        values[number] = data.draw(
            st.sampled_from([bytes(raw), bytes(raw[:cut]), bytes(raw) + b"\x00", b""])
        )
    both.check(values)


def test_windows_of_another_version_are_read() -> None:
    """A plan is made of the writer's schema: fields that are new here or unknown do not matter."""
    current = avro.current(topics.PROBE_WINDOW.name)
    text = current.text.replace(
        '{"name": "sent"', '{"name": "later", "type": ["null", "string"], "default": null}, '
        '{"name": "sent"',
    )  # fmt: skip
    plan = make_plan(load_version(current.topic, 9, text), WINDOWS)
    # Whether it is null, and the text.
    assert len(plan.program) == len(make_plan(current, WINDOWS).program) + 2


def test_most_windows_need_no_fastavro() -> None:
    """The readers could agree because the kernel leaves everything to the slow one."""
    fast = KernelReader(CODEC, CLUSTER, print, lambda key: key)
    window = PathWindow(
        cluster=CLUSTER, path_id="a>b", src="a", dst="b", flow=1, agent_id="räck",
        transport=Transport.UDP, window_start_at=0, window_end_at=30_000_000, sent=30, ok=30,
        lost=0, duplicate_results=0, p50_ns=7,
    )  # fmt: skip
    fast.read_one = None  # type: ignore[method-assign, assignment]
    columns = fast.read(encoded([window, window]))
    assert columns["p50_ns"].tolist() == [7, 7]
    assert columns["p75_ns"].tolist() == [NULL, NULL]
    assert columns.number("p75_ns", 1) is None
    assert np.array_equal(columns.numbers, [0, 0])
    assert columns.key(1) == ("räck", "a", "b", 1)
