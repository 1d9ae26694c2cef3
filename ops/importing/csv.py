"""Reads a probe CSV: which column holds what, by published names, known variants and `--map`.

The published SkeletonHunter repository holds one file, `data/samples.csv`, of 45 columns and three
rows. Its README explains some columns. Units other than that of `latency` (microseconds) were
inferred from the samples: `ping_time` is nanoseconds since the epoch.
"""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TextIO

from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.ids import check_id
from schemas.records import ProbeResult
from schemas.units import US_NS

# Our names, and the headers under which each is found, the published one first.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "src_container": ("src_node_id", "src_container", "src_container_id"),
    "src_address": ("src_ip", "src_address"),
    "src_host": ("src_node_sn", "src_host", "src_host_id", "src_real_ip", "host_ip"),
    "src_port": ("src_port",),
    "dst_container": ("dst_node_id", "dst_container", "dst_container_id"),
    "dst_address": ("dst_ip", "dst_address"),
    "sent_at": ("ping_time", "sent_at", "timestamp"),
    "task_type": ("task_type",),
    "success": ("dial", "success"),
    "rtt_us": ("latency", "rtt_us", "latency_us"),
    "loss_rate": ("loss_rate",),
}
# Published columns that say nothing a round could hold.
IGNORED: Final = frozenset(
    {"agent_type", "dscp", "extra_stats", "host_ip", "ptp_ts", "route", "task_start_time",
     "dst_port", "src_security_domain"}
    | {
        f"{side}_{name}"
        for side in ("src", "dst")
        for name in ("asw", "cluster_id", "cluster_name", "dsw", "idc", "logic_site", "node_sn",
                     "pod", "real_ip", "region_id", "region_name", "tenant_id", "zone_id")
    }
)  # fmt: skip


class HeaderError(ValueError):
    """The header lacks a column that is needed, or a mapping names one that is not there."""


class Columns:
    """Which column of this file holds what.

    Parameters
    ----------
    header
        Names of the columns.
    mapping
        Our name to theirs, before the known names.

    Raises
    ------
    HeaderError
        Naming all that is missing or wrong at once.
    """

    def __init__(self, header: Sequence[str], mapping: Mapping[str, str]) -> None:
        names = [name.strip() for name in header]
        wrong = [f"no field {ours!r}; there are {', '.join(COLUMNS)}"
                 for ours in mapping if ours not in COLUMNS]  # fmt: skip
        wrong += [f"no column {theirs!r}" for theirs in mapping.values() if theirs not in names]
        self.width = len(names)
        self._at: dict[str, int] = {}
        self._names: dict[str, str] = {}
        for ours, known in COLUMNS.items():
            theirs = mapping.get(ours) or next((n for n in known if n in names), None)
            if theirs in names:
                self._at[ours] = names.index(theirs)
                self._names[ours] = theirs
        for needed in (("sent_at",), ("src_container", "src_address"),
                       ("dst_container", "dst_address"), ("rtt_us",)):  # fmt: skip
            if not any(ours in self._at for ours in needed):
                theirs = " or ".join(COLUMNS[ours][0] for ours in needed)
                wrong.append(f"no column {theirs}; name yours by --map {needed[0]}=COLUMN")
        if wrong:
            raise HeaderError("; ".join(wrong))
        used = set(self._names.values())
        self.unknown = [n for n in names if n not in used and n not in IGNORED]

    def name(self, ours: str) -> str:
        """Return the column's name in the file."""
        return self._names.get(ours, ours)

    def get(self, row: Sequence[str], ours: str) -> str:
        """Return the field; empty where there is no such column."""
        at = self._at.get(ours)
        return "" if at is None else row[at].strip()


# A line of the published file has 1.2 KB. Longer than this is not a row.
MAX_LINE_CHARS: Final = 1 << 20
# The worker takes no round trip beyond a minute either: that is a broken clock.
MAX_RTT_US: Final = 60e6
# Between these, the number of digits tells seconds, milli-, micro- and nanoseconds apart.
MIN_TIME_S, MAX_TIME_S = 946_684_800, 4_102_444_800  # the years 2000 and 2100
# Probes of one row are distinguished by their time; a microsecond stays within any round.
PROBE_STEP_NS: Final = 1_000

TRANSPORTS: Final = {
    "RDMA_PING": Transport.RDMA_UD,
    "RDMA": Transport.RDMA_UD,
    "TCP_PING": Transport.TCP,
    "TCP": Transport.TCP,
    "UDP_PING": Transport.UDP,
    "UDP": Transport.UDP,
}
TRACEROUTE: Final = frozenset({"TRACEROUTE", "TRACEROUTE_PING", "TRACE"})
ANSWERED: Final = frozenset({"success", "succeeded", "ok", "true", "1"})
NOT_ANSWERED: Final = {
    "fail": ProbeStatus.TIMEOUT,
    "failed": ProbeStatus.TIMEOUT,
    "failure": ProbeStatus.TIMEOUT,
    "false": ProbeStatus.TIMEOUT,
    "0": ProbeStatus.TIMEOUT,
    "timeout": ProbeStatus.TIMEOUT,
    "refused": ProbeStatus.REFUSED,
    "unreachable": ProbeStatus.UNREACHABLE,
}


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was skipped: where, which value, and the rule that it broke."""

    line: int
    column: str
    value: str
    rule: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 60 else self.value[:57] + "..."
        return f"line {self.line}: {self.column}={shown!a}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one good row says; times are nanoseconds since the epoch."""

    line: int
    agent_id: str
    host_id: str
    src: str
    dst: str
    src_port: str | None
    sent_ns: int
    transport: Transport
    statuses: tuple[ProbeStatus, ...]
    rtt_ns: int | None

    def results(self, flow: int, started_ns: int) -> list[ProbeResult]:
        """Return the row's probes as results of a round that started then."""
        return [
            ProbeResult(
                src=self.src,
                dst=self.dst,
                flow=flow,
                sent_offset_ns=self.sent_ns - started_ns + i * PROBE_STEP_NS,
                transport=self.transport,
                status=status,
                rtt_ns=self.rtt_ns if status is ProbeStatus.OK else None,
                clock=ClockSource.UNKNOWN,
            )
            for i, status in enumerate(self.statuses)
        ]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is no probe (a traceroute); not an error."""

    line: int


class _RuleError(ValueError):
    def __init__(self, column: str, value: str, rule: str) -> None:
        self.column, self.value, self.rule = column, value, rule
        super().__init__(rule)


def parse(
    file: TextIO, mapping: Mapping[str, str], probes_per_row: int = 1
) -> tuple[Columns, Iterator[Row | BadRow | Skipped]]:
    """Read a CSV file, row by row.

    Parameters
    ----------
    file
        Text with a header line; read as it is asked for.
    mapping
        Our name to the file's column.
    probes_per_row
        How many probes a row sums up; needed to give a fractional loss rate a meaning.

    Raises
    ------
    HeaderError
        If the header lacks a needed column.
    """
    reader = csv.reader(_bounded_lines(file))
    try:
        columns = Columns(next(reader, []), mapping)
    except csv.Error as error:
        raise HeaderError(f"no CSV header: {error}") from error
    return columns, _rows(reader, lambda: reader.line_num, columns, probes_per_row)


def _rows(
    reader: Iterator[list[str]],
    lines_read: Callable[[], int],
    columns: Columns,
    probes_per_row: int,
) -> Iterator[Row | BadRow | Skipped]:
    while True:
        line = lines_read() + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield BadRow(line, "(row)", "", f"not CSV: {error}")
            continue
        if fields is None:
            return
        if not fields:
            continue
        if len(fields) != columns.width:
            rule = f"{len(fields)} fields; the header has {columns.width}"
            yield BadRow(line, "(row)", ",".join(fields), rule)
            continue
        try:
            yield _row(line, fields, columns, probes_per_row)
        except _RuleError as error:
            yield BadRow(line, columns.name(error.column), error.value, error.rule)


def _row(line: int, fields: list[str], columns: Columns, probes_per_row: int) -> Row | Skipped:
    task_type = columns.get(fields, "task_type").upper()
    if task_type in TRACEROUTE:
        return Skipped(line)
    if task_type and task_type not in TRANSPORTS:
        known = ", ".join(sorted({*TRANSPORTS, *TRACEROUTE}))
        raise _RuleError("task_type", columns.get(fields, "task_type"), f"one of {known}")
    src_container, src = _endpoint(fields, columns, "src")
    _, dst = _endpoint(fields, columns, "dst")
    rtt_ns = _rtt_ns(columns.get(fields, "rtt_us"))
    statuses = _statuses(fields, columns, probes_per_row)
    if rtt_ns is None and ProbeStatus.OK in statuses:
        raise _RuleError("rtt_us", "", "answered, but no latency")
    host = columns.get(fields, "src_host")
    return Row(
        line=line,
        agent_id=src_container,
        host_id=_id("src_host", host) if host else src_container,
        src=src,
        dst=dst,
        src_port=columns.get(fields, "src_port") or None,
        sent_ns=_time_ns(columns.get(fields, "sent_at")),
        transport=TRANSPORTS.get(task_type, Transport.UNKNOWN),
        statuses=statuses,
        rtt_ns=rtt_ns,
    )


def _endpoint(fields: list[str], columns: Columns, side: str) -> tuple[str, str]:
    """Return container and endpoint id: `<container>/<address>`, or what there is of it."""
    container = columns.get(fields, f"{side}_container")
    address = columns.get(fields, f"{side}_address")
    if not container and not address:
        raise _RuleError(f"{side}_container", "", "neither container nor address")
    parts = [
        _id(f"{side}_{what}", value)
        for what, value in (("container", container), ("address", address))
        if value
    ]
    return parts[0], _id(f"{side}_address", "/".join(parts))


def _id(column: str, value: str) -> str:
    try:
        return check_id(column, value)
    except ValueError as error:
        raise _RuleError(column, value, str(error)) from error


def _rtt_ns(text: str) -> int | None:
    if not text:
        return None
    rtt_us = _number("rtt_us", text)
    if not 0 <= rtt_us <= MAX_RTT_US:
        raise _RuleError("rtt_us", text, f"microseconds from 0 to {MAX_RTT_US:,.0f}")
    return round(rtt_us * US_NS)


def _statuses(fields: list[str], columns: Columns, probes_per_row: int) -> tuple[ProbeStatus, ...]:
    said = columns.get(fields, "success")
    word = said.lower()
    if word in NOT_ANSWERED:
        return (NOT_ANSWERED[word],) * probes_per_row
    if word and word not in ANSWERED:
        known = ", ".join([*sorted(ANSWERED), *NOT_ANSWERED])
        raise _RuleError("success", said, f"one of {known}")
    text = columns.get(fields, "loss_rate")
    loss_rate = _number("loss_rate", text) if text else 0.0
    if not 0 <= loss_rate <= 1:
        raise _RuleError("loss_rate", text, "from 0 to 1")
    lost = loss_rate * probes_per_row
    # A rate of two or three decimals need not hit a whole number exactly.
    if abs(lost - round(lost)) > 0.05:
        rule = f"no whole number of {probes_per_row} probes; --probes-per-row says how many"
        raise _RuleError("loss_rate", text, rule)
    answered = probes_per_row - round(lost)
    return (ProbeStatus.OK,) * answered + (ProbeStatus.TIMEOUT,) * round(lost)


def _number(column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _RuleError(column, text, "a finite number")
    return number


def _time_ns(text: str) -> int:
    """Return nanoseconds since the epoch; whole numbers are distinguished by their size."""
    rule = "a time from 2000 to 2100: seconds, ms, us or ns since the epoch, or ISO (UTC)"
    if text.isascii() and text.isdigit() and len(text) <= 20:
        number = int(text)
        for per_s in (1, 10**3, 10**6, 10**9):
            if MIN_TIME_S * per_s <= number < MAX_TIME_S * per_s:
                return number * (10**9 // per_s)
        raise _RuleError("sent_at", text, rule)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _RuleError("sent_at", text, rule) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    sent_ns = round(moment.timestamp() * 10**6) * US_NS
    if not MIN_TIME_S * 10**9 <= sent_ns < MAX_TIME_S * 10**9:
        raise _RuleError("sent_at", text, rule)
    return sent_ns


def _bounded_lines(file: TextIO) -> Iterator[str]:
    """Yield lines; what is beyond a sane length is cut off, so that its row is found bad."""
    while line := file.readline(MAX_LINE_CHARS):
        if len(line) == MAX_LINE_CHARS and not line.endswith("\n"):
            while (rest := file.readline(MAX_LINE_CHARS)) and not rest.endswith("\n"):
                pass
            line = "\n".join(["x" * (csv.field_size_limit() + 1), ""])
        yield line
