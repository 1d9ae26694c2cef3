"""The published CSV becomes rounds; what is wrong with a row is said exactly."""

import csv
import io
from collections.abc import Mapping, Sequence

import pytest

from ops.importing.csv import BadRow, HeaderError, Row, Skipped, parse
from ops.importing.rounds import RoundBuilder
from schemas.enums import ProbeStatus, Transport
from schemas.kafka.murmur2 import murmur2, partition_of
from schemas.records import ProbeRound

# The header of the published file, in its order.
PUBLISHED = [
    "agent_type",
    "dial",
    "dscp",
    "dst_asw",
    "dst_cluster_id",
    "dst_cluster_name",
    "dst_dsw",
    "dst_idc",
    "dst_ip",
    "dst_logic_site",
    "dst_node_id",
    "dst_node_sn",
    "dst_pod",
    "dst_port",
    "dst_real_ip",
    "dst_region_id",
    "dst_region_name",
    "dst_tenant_id",
    "dst_zone_id",
    "extra_stats",
    "host_ip",
    "latency",
    "loss_rate",
    "ping_time",
    "ptp_ts",
    "route",
    "src_asw",
    "src_cluster_id",
    "src_cluster_name",
    "src_dsw",
    "src_idc",
    "src_ip",
    "src_logic_site",
    "src_node_id",
    "src_node_sn",
    "src_pod",
    "src_port",
    "src_real_ip",
    "src_region_id",
    "src_region_name",
    "src_security_domain",
    "src_tenant_id",
    "src_zone_id",
    "task_start_time",
    "task_type",
]
SENT_NS = 1_733_989_087_162_141_801
GOOD = {
    "agent_type": "overlay",
    "dial": "success",
    "dscp": "0",
    "dst_ip": "d" * 32,
    "dst_node_id": "c1",
    "dst_port": "65300",
    "latency": "16.183",
    "loss_rate": "0",
    "ping_time": str(SENT_NS),
    "src_ip": "a" * 32,
    "src_node_id": "c0",
    "src_node_sn": "h0",
    "src_port": "50569",
    "task_start_time": str(SENT_NS - 160_712),
    "task_type": "RDMA_PING",
}


def text(*rows: Mapping[str, str], header: Sequence[str] = PUBLISHED) -> io.StringIO:
    """Return a CSV file of these rows; fields not given are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, header, restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return io.StringIO(out.getvalue())


def rows(file: io.StringIO, probes_per_row: int = 1) -> list[Row | BadRow | Skipped]:
    """Parse all rows."""
    return list(parse(file, {}, probes_per_row)[1])


def test_a_published_row() -> None:
    """Times, microseconds, ids and transport of the published columns are understood."""
    columns, parsed = parse(text(GOOD), {})
    (row,) = parsed
    assert row == Row(
        line=2,
        agent_id="c0",
        host_id="h0",
        src="c0/" + "a" * 32,
        dst="c1/" + "d" * 32,
        src_port="50569",
        sent_ns=SENT_NS,
        transport=Transport.RDMA_UD,
        statuses=(ProbeStatus.OK,),
        rtt_ns=16_183,
    )
    assert columns.unknown == []


@pytest.mark.parametrize(
    ("change", "column", "value", "rule"),
    [
        ({"latency": "fast"}, "latency", "fast", "a finite number"),
        ({"latency": "-1"}, "latency", "-1", "microseconds from 0 to 60,000,000"),
        ({"latency": "nan"}, "latency", "nan", "a finite number"),
        ({"latency": ""}, "latency", "", "answered, but no latency"),
        ({"loss_rate": "1.5"}, "loss_rate", "1.5", "from 0 to 1"),
        ({"loss_rate": "0.3"}, "loss_rate", "0.3", "no whole number of 1 probes"),
        ({"dial": "maybe"}, "dial", "maybe", "one of 1, ok, succeeded, success, true, fail"),
        ({"ping_time": "5"}, "ping_time", "5", "a time from 2000 to 2100"),
        ({"ping_time": "1" * 4000}, "ping_time", "1" * 4000, "a time from 2000 to 2100"),
        ({"ping_time": ""}, "ping_time", "", "a time from 2000 to 2100"),
        ({"task_type": "DNS"}, "task_type", "DNS", "one of RDMA, RDMA_PING, TCP"),
        ({"src_node_id": "a>b"}, "src_node_id", "a>b", "src_container 'a>b' holds '>'"),
        ({"dst_ip": "x y"}, "dst_ip", "x y", "dst_address 'x y' holds ' '"),
        ({"dst_ip": "", "dst_node_id": ""}, "dst_node_id", "", "neither container nor address"),
    ],
)
def test_bad_rows_name_line_column_value_rule(
    change: dict[str, str], column: str, value: str, rule: str
) -> None:
    """Each kind of bad field is told by its column in the file, and the rows around it live."""
    first, bad, last = rows(text(GOOD, {**GOOD, **change}, GOOD))
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.column, bad.value) == (3, column, value)
    assert bad.rule.startswith(rule)
    assert len(str(bad)) < 250
    assert isinstance(first, Row)
    assert isinstance(last, Row)


@pytest.mark.parametrize(
    ("change", "probes", "expected"),
    [
        ({"dial": "failed", "latency": ""}, 1, [ProbeStatus.TIMEOUT]),
        ({"dial": "refused", "latency": ""}, 1, [ProbeStatus.REFUSED]),
        ({"dial": "", "loss_rate": "1", "latency": ""}, 1, [ProbeStatus.TIMEOUT]),
        ({"dial": "", "loss_rate": ""}, 1, [ProbeStatus.OK]),
        ({"loss_rate": "0.333"}, 3, [ProbeStatus.OK] * 2 + [ProbeStatus.TIMEOUT]),
        ({"loss_rate": "0.1"}, 10, [ProbeStatus.OK] * 9 + [ProbeStatus.TIMEOUT]),
    ],
)
def test_what_became_of_the_probes(
    change: dict[str, str], probes: int, expected: list[ProbeStatus]
) -> None:
    """Flag and loss rate give one status per probe; a lost one has no round trip."""
    (row,) = rows(text({**GOOD, **change}), probes)
    assert isinstance(row, Row)
    results = row.results(0, SENT_NS - 500)
    assert [r.status for r in results] == expected
    assert all((r.rtt_ns is None) == (r.status is not ProbeStatus.OK) for r in results)
    assert [r.sent_offset_ns for r in results] == [500 + i * 1000 for i in range(probes)]


@pytest.mark.parametrize(
    ("said", "sent_ns"),
    [
        ("1733989087", 1_733_989_087 * 10**9),
        ("1733989087162", 1_733_989_087_162 * 10**6),
        ("1733989087162141", 1_733_989_087_162_141 * 10**3),
        ("2024-12-12T07:38:07.162141Z", 1_733_989_087_162_141 * 10**3),
        ("2024-12-12 15:38:07+08:00", 1_733_989_087 * 10**9),
    ],
)
def test_times_of_all_units(said: str, sent_ns: int) -> None:
    """Seconds, milli-, micro- and nanoseconds are told apart by their size; ISO is taken."""
    (row,) = rows(text({**GOOD, "ping_time": said}))
    assert isinstance(row, Row)
    assert row.sent_ns == sent_ns


def test_traceroutes_are_skipped_not_bad() -> None:
    """A traceroute row is no probe and no error."""
    assert rows(text({**GOOD, "task_type": "Traceroute"})) == [Skipped(2)]


def test_other_headers_by_alias_and_mapping() -> None:
    """Aliases are known, anything else is named by --map, unknown columns are listed."""
    header = ["timestamp", "src_container", "dst_container", "my_rtt", "colour"]
    file = text(
        {"timestamp": "1733989087", "src_container": "a", "dst_container": "b", "my_rtt": "7"},
        header=header,
    )
    columns, parsed = parse(file, {"rtt_us": "my_rtt"})
    (row,) = parsed
    assert isinstance(row, Row)
    assert (row.src, row.dst, row.rtt_ns, row.host_id) == ("a", "b", 7000, "a")
    assert columns.unknown == ["colour"]


def test_a_header_that_lacks_something_names_all_of_it() -> None:
    """One message tells all that is missing, and how to name it."""
    with pytest.raises(HeaderError) as error:
        parse(io.StringIO("a,b\n1,2\n"), {"nonsense": "a", "rtt_us": "c"})
    message = str(error.value)
    for part in ("no field 'nonsense'", "no column 'c'", "ping_time", "src_node_id or src_ip"):
        assert part in message


def test_broken_csv_is_survived() -> None:
    """Ragged rows, endless lines, NULs and bytes that are no text cost one row each."""
    good = text(GOOD).getvalue().splitlines()[1]
    file = io.StringIO(
        "\n".join(
            [",".join(PUBLISHED), good, "1,2,3", "x" * 3_000_000, good, "", good + ",x",
             good.replace("c0", "\udcff"), good.replace("16.183", "\0"), good]
        )
    )  # fmt: skip
    parsed = rows(file)
    kinds = [type(r) for r in parsed]
    assert kinds == [Row, BadRow, BadRow, Row, BadRow, BadRow, BadRow, Row]
    bad = [r for r in parsed if isinstance(r, BadRow)]
    assert [b.line for b in bad] == [3, 4, 7, 8, 9]
    assert bad[0].rule == "3 fields; the header has 45"
    assert "field larger" in bad[1].rule
    assert all(str(b).isascii() for b in bad)


def row(second: float, src: str = "c0", port: str = "1", line: int = 2) -> Row:
    """Return a good row, sent at that second after the start."""
    return Row(
        line=line,
        agent_id=src,
        host_id="h",
        src=f"{src}/x",
        dst="d/x",
        src_port=port,
        sent_ns=1_733_989_000 * 10**9 + round(second * 10**9),
        transport=Transport.RDMA_UD,
        statuses=(ProbeStatus.OK,),
        rtt_ns=1000,
    )


def build(given: Sequence[Row], **options: int) -> tuple[list[ProbeRound], RoundBuilder]:
    """Group rows; return the rounds in the order in which they come out."""
    builder = RoundBuilder(cluster="c", interval_ns=10**9, **options)  # type: ignore[arg-type]
    rounds = [r for one in given for r in builder.add_row(one)[0]]
    return rounds + builder.flush(), builder


def test_rows_of_a_source_and_second_are_one_round() -> None:
    """Rounds hold a source's rows of an interval in order of sending; nothing is lost."""
    rounds, builder = build([row(0.9), row(0.1), row(1.5), row(0.5, "c9")])
    assert [(r.agent_id, r.started_at - 1_733_989_000 * 10**6, r.round_seq) for r in rounds] == [
        ("c0", 0, 0),
        ("c9", 0, 0),
        ("c0", 10**6, 1),
    ]
    assert [x.sent_offset_ns for x in rounds[0].results] == [10**8, 9 * 10**8]
    assert builder.disordered == 0


def test_memory_is_bounded_while_it_streams() -> None:
    """Rounds leave as soon as their source is ten seconds ahead, or too many rows wait."""
    builder = RoundBuilder(cluster="c", interval_ns=10**9)
    assert builder.add_row(row(0))[0] == []
    assert [len(r.results) for r in builder.add_row(row(12))[0]] == [1]
    held, _ = build([row(i / 1000) for i in range(500)], max_open_rows=100)
    assert sum(len(r.results) for r in held) == 500


def test_a_file_sorted_by_source_is_told() -> None:
    """Rows far older than rows before them still make rounds, and are counted."""
    rounds, builder = build([row(0), row(60), row(1, "c9"), row(2, "c9")])
    assert len(rounds) == 4
    assert builder.disordered == 2


def test_flows_by_source_port() -> None:
    """Ports of a pair are numbered as they appear; a port per probe is refused."""
    builder = RoundBuilder(cluster="c", interval_ns=10**9, flow_by="src_port")
    for number, port in enumerate(("50", "51", "50", "52")):
        assert builder.add_row(row(number / 10, port=port)) == ([], None)
    (record,) = builder.flush()
    assert [r.flow for r in record.results] == [0, 1, 0, 2]
    complaints = [builder.add_row(row(1, port=str(p)))[1] for p in range(100)]
    assert sum(c is None for c in complaints) == 64
    assert complaints[-1] is not None
    assert "--flow-by pair" in complaints[-1].rule


@pytest.mark.parametrize(
    ("key", "expected"), [(b"21", -973932308), (b"foobar", -790332482), (b"", 275646681)]
)
def test_murmur2_is_that_of_java(key: bytes, expected: int) -> None:
    """Known values of Kafka's own implementation."""
    assert murmur2(key) == expected % 2**32
    assert 0 <= partition_of(key, 4) < 4
