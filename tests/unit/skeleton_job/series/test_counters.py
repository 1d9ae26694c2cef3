"""The store of readings: everything comes out as it came in, and it does not grow."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import CounterBatch, CounterSample
from schemas.units import SECOND_NS
from skeleton_job.series.counters import CounterStore
from skeleton_job.series.pages import MAX_NAMES

BEGIN_S = 1_760_000_000


def sample(endpoint: str, offset_ns: int, value: int, bits: int = 64) -> CounterSample:
    """Return a reading that sends and receives alike but for one byte."""
    return CounterSample(
        endpoint_id=endpoint,
        rail=0,
        tick_offset_ns=offset_ns,
        read_delay_ns=offset_ns % 7,
        tx_bytes=value,
        rx_bytes=value + 1,
        counter_bits=bits,
    )


def batch(agent: str, second: int, samples: list[CounterSample]) -> CounterBatch:
    """Return a second of readings."""
    return CounterBatch(
        cluster="lab",
        agent_id=agent,
        host_id=agent,
        started_at=(BEGIN_S + second) * 10**6,
        tick_ns=SECOND_NS // 10,
        samples=tuple(samples),
    )


offsets = st.one_of(st.integers(0, SECOND_NS), st.integers(0, 600 * SECOND_NS))
samples = st.lists(
    st.builds(
        sample,
        st.sampled_from(["a", "b", "c", "other"]),
        offsets,
        st.integers(0, 2**64 - 2),
        st.sampled_from([32, 64]),
    ),
    max_size=12,
)


@settings(max_examples=100)
@given(batches=st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 200), samples)))
def test_what_comes_out_is_what_came_in(
    batches: list[tuple[str, int, list[CounterSample]]],
) -> None:
    """Late and double batches, wide ones, the largest values: against a list of all readings."""
    store = CounterStore(10_000 * SECOND_NS)
    came: dict[str, dict[int, tuple[int, int]]] = {"a": {}, "b": {}, "c": {}}
    for agent, second, some in batches:
        assert store.add_batch(batch(agent, second, some)) == 0
    for agent in "xy":
        for whose, second, some in batches:
            if whose != agent:
                continue
            for s in some:
                time_ns = (BEGIN_S + second) * SECOND_NS + s.tick_offset_ns + (s.read_delay_ns or 0)
                if s.endpoint_id in came:
                    came[s.endpoint_id].setdefault(time_ns, (0, 0))
    found = store.readings("xy", ["c", "a", "b"], 0, 2**62)
    assert found.endpoints == ("c", "a", "b")
    values = {
        (e, (BEGIN_S + second) * SECOND_NS + s.tick_offset_ns + (s.read_delay_ns or 0), s.tx_bytes)
        for _, second, some in batches
        for s in some
        for e in [s.endpoint_id]
    }
    for name, begin, end in zip(found.endpoints, found.begin, found.end, strict=True):
        times = found.time_ns[begin:end].tolist()
        assert times == sorted(came[name])
        for t, tx, rx in zip(
            times, found.tx_bytes[begin:end].tolist(), found.rx_bytes[begin:end].tolist(),
            strict=True,
        ):  # fmt: skip
            assert (name, t, tx) in values
            assert rx == tx + 1


def test_an_agent_with_very_many_rnics_loses_none() -> None:
    """More names than a page numbers."""
    store = CounterStore(60 * SECOND_NS)
    names = [f"e{i}" for i in range(3 * MAX_NAMES + 1)]
    for second in range(3):
        store.add_batch(batch("x", second, [sample(n, 5, i) for i, n in enumerate(names)]))
    found = store.readings(["x"], names, 0, 2**62)
    assert (found.end - found.begin).tolist() == [3] * len(names)
    assert found.tx_bytes[found.begin].tolist() == list(range(len(names)))


def test_the_latest_width_of_a_counter_counts() -> None:
    """A driver that was changed declares another one."""
    store = CounterStore(600 * SECOND_NS)
    for second in range(100):
        bits = 32 if second < 50 else 64
        store.add_batch(batch("x", second, [sample("a", 0, second, bits)]))
    assert store.readings(["x"], ["a", "gone"], 0, 2**62).bits.tolist() == [64, 0]


def test_names_of_containers_that_are_gone_do_not_stay() -> None:
    """An agent whose containers change all the time keeps those within the horizon only."""
    store = CounterStore(20 * SECOND_NS)
    for second in range(400):
        store.add_batch(batch("x", second, [sample(f"c{second}", 0, second)]))
    agent = store._agents["x"]
    assert sum(len(page.codes) for page in agent.pages) <= 24
    assert store.latest_of("x") == (BEGIN_S + 399) * SECOND_NS


def test_a_silent_agent_is_forgotten() -> None:
    """After two horizons of the others' time; its memory with it."""
    store = CounterStore(10 * SECOND_NS)
    store.add_batch(batch("gone", 0, [sample("a", 0, 1)]))
    for second in range(1, 40):
        store.add_batch(batch("here", second, [sample("b", 0, second)]))
    assert store.latest_of("gone") is None
    assert store.latest_of("here") is not None
    assert store.series == 1


def test_a_silent_agent_of_no_job_is_forgotten_sooner() -> None:
    """After one horizon, and only then: what is read after a start may come before its job."""
    store = CounterStore(10 * SECOND_NS, in_job=lambda agent: agent == "member")
    for agent in ("member", "stranger"):
        store.add_batch(batch(agent, 0, [sample("a", 0, 1)]))
    for second in range(1, 35):
        store.add_batch(batch("here", second, [sample("b", 0, second)]))
        known = [a for a in ("member", "stranger") if store.latest_of(a) is not None]
        # Agents are looked for every ten seconds.
        assert known == (["member", "stranger"] if second < 20 else ["member"] * (second < 30))


def test_series_beyond_the_bound_are_refused() -> None:
    """Those that are known go on; once some are forgotten there is room for others."""
    store = CounterStore(10 * SECOND_NS, max_series=4)
    for second in range(5):
        store.add_batch(batch("x", second, [sample("a", 0, second), sample("b", 0, second)]))
        for number in range(3):
            store.add_batch(batch(f"y{second}-{number}", second, [sample("a", 0, 1)]))
    assert store.series == 4
    assert store.refused == 13
    assert store.latest_of("x") == (BEGIN_S + 4) * SECOND_NS
    assert store.latest_of("y4-0") is None
    for second in range(5, 60):
        store.add_batch(batch("x", second, [sample("a", 0, second), sample("b", 0, second)]))
    store.add_batch(batch("late", 60, [sample("a", 0, 1)]))
    assert store.latest_of("late") is not None
    assert store.refused == 13


def test_an_agent_whose_endpoints_change_all_the_time_is_bounded() -> None:
    """Each change counts anew until the pages of before are old."""
    store = CounterStore(20 * SECOND_NS, max_series=10)
    for second in range(15):
        store.add_batch(batch("x", second, [sample(f"c{second}", 0, second)]))
    assert store.series == 10
    assert store.refused == 5


def test_pages_take_about_fifteen_bytes_a_reading() -> None:
    """Closed pages of a busy agent: 15 bytes a reading and little beside it."""
    store = CounterStore(100 * SECOND_NS)
    some = [sample(f"e{r}", 100_000_000 * t, t) for t in range(10) for r in range(8)]
    for second in range(60):
        # 400 Gbit/s.
        sent = 2**63 + second * 50 * 10**9
        store.add_batch(
            batch("x", second, [replace(s, tx_bytes=sent, rx_bytes=sent) for s in some])
        )
    pages = list(store._agents["x"].pages)[:-1]
    assert len(pages) >= 8
    held = 0
    for page in pages:
        assert page._narrow is not None
        halves = (half for column in page._narrow for half in (column.low, column.high))
        held += sum(half.nbytes for half in halves if half is not None)
        held += page._offset.nbytes + page._code.nbytes + page._tx.nbytes + page._rx.nbytes
    rows = sum(page.columns(0, 2**62)[0].size for page in pages)
    assert held == 15 * rows
    assert np.unique([id(page.codes) for page in pages]).size == 1
