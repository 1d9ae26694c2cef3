"""Holds the counter readings of the last minutes, packed, by agent.

In: rnic.counters.v1 batches, as records or as columns. Out: `Readings` of the endpoints of a job.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median_low
from typing import Final

import numpy as np

from schemas.process import memory
from schemas.process.names import shared
from schemas.records import CounterBatch
from schemas.units import SECOND_NS
from skeleton_job.series.columns import MAX_BATCH_SPAN_NS, CounterColumns
from skeleton_job.series.pages import MAX_NAMES, SPAN_NS, Codes, Numbers, Page
from skeleton_job.series.readings import Readings, in_order
from skeleton_job.series.unwrapping import UNDECLARED

MAX_BYTES: Final = 2**64
# Pages that an agent has within the horizon.
PAGES: Final = 20
# Silent agents are looked for at this distance of event time.
SWEEP_NS: Final = 10 * SECOND_NS
# Series of readings that are held.
MAX_SERIES: Final = 200_000


class _Agent:
    """The pages of one agent, the series in them, and its latest reading.

    `pattern` identifies the endpoints and widths of its latest batch; `coded` holds their numbers
    and the page codes these refer to.
    """

    __slots__ = ("coded", "latest_ns", "pages", "pattern", "series")

    def __init__(self) -> None:
        self.latest_ns = 0
        self.series = 0
        # No deque: an empty one takes 600 bytes.
        self.pages: list[Page] = []
        self.pattern = b""
        self.coded: tuple[Codes, Numbers] = ({}, np.empty(0, dtype=np.uint8))


class CounterStore:
    """Holds `horizon_ns` of event time of each agent's readings.

    An agent that is silent for two horizons is forgotten, one of no job after one: not earlier,
    since after a start readings of many minutes may come before the jobs.

    Parameters
    ----------
    in_job
        Whether an agent is part of a job: its readings may still be inferred from.

    Attributes
    ----------
    series
        Endpoints with readings, counted for each agent, and anew when an agent's endpoints change.
    refused
        Readings of series beyond the bound.
    """

    def __init__(
        self,
        horizon_ns: int,
        max_series: int = MAX_SERIES,
        in_job: Callable[[str], bool] = lambda _agent: True,
    ) -> None:
        self.series = self.refused = 0
        self._max_series = max_series
        self._horizon_ns = horizon_ns
        self._in_job = in_job
        # Pages are dropped as a whole, so readings outlive the horizon by up to this time.
        self._page_ns = max(SECOND_NS, horizon_ns // PAGES)
        self._agents: dict[str, _Agent] = {}
        self._latest_ns = 0
        self._swept_ns = 0

    def add_batch(self, batch: CounterBatch) -> int:
        """Add a batch; return how many of its samples cannot be used."""
        start_ns = batch.started_at * 1000
        rows: list[tuple[int, str, int, int, int]] = []
        for s in batch.samples:
            tx, rx, offset_ns, delay_ns = s.tx_bytes, s.rx_bytes, s.tick_offset_ns, s.read_delay_ns
            if (
                tx is not None
                and rx is not None
                and 0 <= tx < MAX_BYTES
                and 0 <= rx < MAX_BYTES
                and 1 <= s.counter_bits <= 64
                and 0 <= offset_ns <= MAX_BATCH_SPAN_NS
                and 0 <= (delay_ns or 0) <= MAX_BATCH_SPAN_NS
            ):
                time_ns = start_ns + offset_ns + (delay_ns or 0)
                rows.append((time_ns, s.endpoint_id, s.counter_bits, tx, rx))
        if rows:
            self._store_rows(batch.agent_id, rows)
        return len(batch.samples) - len(rows)

    def add_columns(self, batch: CounterColumns) -> None:
        """Add a batch whose samples can all be used."""
        agent = self._agents.get(batch.agent_id)
        key = batch.names.tobytes() + batch.bits.tobytes()
        begin_ns, end_ns = int(batch.time_ns.min()), int(batch.time_ns.max())
        if agent is not None and agent.pages and key == agent.pattern:
            page = agent.pages[-1]
            if (
                page.codes is agent.coded[0]
                and end_ns - begin_ns < SPAN_NS
                and page.has_room_for(begin_ns, end_ns, self._page_ns)
            ):
                page.add_batch(batch.time_ns, agent.coded[1], batch.tx_bytes, batch.rx_bytes)
                self._note_batch(agent, end_ns)
                return
        names, widths = batch.endpoints(), batch.bits.tolist()
        columns = batch.time_ns, batch.tx_bytes, batch.rx_bytes
        times, tx, rx = (column.tolist() for column in columns)
        self._store_rows(batch.agent_id, list(zip(times, names, widths, tx, rx, strict=True)))
        agent = self._agents.get(batch.agent_id)
        if agent is None:
            return
        # The next batch will have the same endpoints in the same order.
        codes = agent.pages[-1].codes
        wanted = list(zip(names, widths, strict=True))
        if all(name in codes for name in wanted):
            agent.pattern = key
            agent.coded = codes, np.array([codes[name] for name in wanted], dtype=np.uint8)

    def latest_of(self, agent_id: str) -> int | None:
        """Return the time of an agent's latest reading, None without any."""
        agent = self._agents.get(agent_id)
        return None if agent is None else agent.latest_ns

    def latest_ns(self, agents: Iterable[str]) -> int | None:
        """Return the median of these agents' latest readings, None without any.

        The median, so that neither a dead agent nor one with a fast clock decides.
        """
        latest = [self._agents[a].latest_ns for a in agents if a in self._agents]
        return median_low(latest) if latest else None

    def readings(
        self, agents: Iterable[str], endpoints: Sequence[str], start_ns: int, end_ns: int
    ) -> Readings:
        """Return the readings of these endpoints by these agents.

        Whole batches that overlap the time from start_ns to end_ns.
        """
        row_of = {endpoint: row for row, endpoint in enumerate(endpoints)}
        bits = np.full(len(endpoints), UNDECLARED, dtype=np.int64)
        # Rows of the endpoints by page codes, which several pages share.
        known: dict[int, np.ndarray] = {}
        parts = []
        for agent_id in sorted(set(agents)):
            agent = self._agents.get(agent_id)
            for page in agent.pages if agent is not None else ():
                time_ns, code, tx, rx = page.columns(start_ns, end_ns)
                if not time_ns.size:
                    continue
                rows = known.get(id(page.codes))
                if rows is None or rows.size < len(page.codes):
                    rows = np.array([row_of.get(name, -1) for name, _ in page.codes], np.int32)
                    known[id(page.codes)] = rows
                seen = np.bincount(code, minlength=rows.size) > 0
                for (_, width), row, here in zip(page.codes, rows, seen, strict=True):
                    if here and row >= 0:
                        bits[row] = width
                row = rows[code]
                if rows.min() < 0:
                    mine = row >= 0
                    row, time_ns, tx, rx = row[mine], time_ns[mine], tx[mine], rx[mine]
                parts.append((row, time_ns, tx, rx))
        columns = zip(*parts, strict=True) if parts else (_NO_ROW, _NO_TIME, _NO_BYTES, _NO_BYTES)
        row, time_ns, tx, rx = (np.concatenate(list(column)) for column in columns)
        return in_order(endpoints, row, time_ns=time_ns, tx_bytes=tx, rx_bytes=rx, bits=bits)

    def _store_rows(self, agent_id: str, rows: list[tuple[int, str, int, int, int]]) -> None:
        times, names, widths, tx, rx = zip(*rows, strict=True)
        begin_ns, end_ns = min(times), max(times)
        wanted = set(zip(names, widths, strict=True))
        if end_ns - begin_ns >= SPAN_NS or len(wanted) > MAX_NAMES:
            # Split until each half fits a page; real hosts have fewer RNICs, and batches last a
            # second.
            rows = sorted(rows)
            self._store_rows(agent_id, rows[: len(rows) // 2])
            self._store_rows(agent_id, rows[len(rows) // 2 :])
            return
        agent = self._agents.get(agent_id)
        page = agent.pages[-1] if agent is not None else None
        new = len(wanted if page is None else wanted.difference(page.codes))
        if new and self.series + new > self._max_series:
            self.refused += len(rows)
            return
        if agent is None:
            agent = self._agents[shared(agent_id)] = _Agent()
        if (
            page is None
            or not page.has_room_for(begin_ns, end_ns, self._page_ns)
            or new + len(page.codes) > MAX_NAMES
        ):
            page = self._new_page(agent, page, wanted)
        codes = page.codes
        for name, width in wanted.difference(codes):
            codes[shared(name), width] = len(codes)
        code = [codes[n, w] for n, w in zip(names, widths, strict=True)]
        page.add_batch(
            np.array(times, dtype=np.int64),
            code,
            np.array(tx, dtype=np.uint64),
            np.array(rx, dtype=np.uint64),
        )
        held = {id(p.codes): len(p.codes) for p in agent.pages}
        self.series += sum(held.values()) - agent.series
        agent.series = sum(held.values())
        self._note_batch(agent, end_ns)

    def _note_batch(self, agent: _Agent, end_ns: int) -> None:
        agent.latest_ns = max(agent.latest_ns, end_ns)
        self._latest_ns = max(self._latest_ns, end_ns)
        if self._latest_ns - self._swept_ns >= SWEEP_NS:
            self._swept_ns = self._latest_ns
            self._forget_silent()

    def _new_page(self, agent: _Agent, last: Page | None, wanted: set[tuple[str, int]]) -> Page:
        codes: Codes = {}
        if last is not None:
            last.close()
            # Start new codes if the names changed, so that old names do not stay for ever.
            codes = last.codes if wanted == last.codes.keys() else {}
        while agent.pages and agent.pages[0].end_ns < agent.latest_ns - self._horizon_ns:
            del agent.pages[0]
        page = Page(codes)
        agent.pages.append(page)
        return page

    def _forget_silent(self) -> None:
        once_ns, twice_ns = (self._latest_ns - n * self._horizon_ns for n in (1, 2))
        silent = [
            name
            for name, agent in self._agents.items()
            if agent.latest_ns < once_ns and (agent.latest_ns < twice_ns or not self._in_job(name))
        ]
        for agent_id in silent:
            self.series -= self._agents.pop(agent_id).series
        memory.shrink_tables(self)


_NO_ROW: Final = (np.empty(0, dtype=np.int32),)
_NO_TIME: Final = (np.empty(0, dtype=np.int64),)
_NO_BYTES: Final = (np.empty(0, dtype=np.uint64),)
