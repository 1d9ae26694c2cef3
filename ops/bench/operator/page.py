"""The operator's page: how soon, how fast, what it takes; reports; hostile names."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from ops.bench.operator import cluster
from ops.bench.operator.cluster import CLUSTER, Told
from ops.bench.operator.site import Writer, browser, site
from ops.bench.rig.process_cost import cpu_s, memory
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.broker.embedded import EmbeddedKafka
from ops.log.entry import Entry
from ops.recording.manifest import Manifest
from ops.recording.source import Source
from ops.recording.writer import RecordingWriter
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from ops.web.pages.counters import MAX_HOSTS
from ops.web.pages.report import to_html
from ops.web.recorded import OF_INCIDENTS, RecordedSource
from ops.web.review import incidents
from schemas import topics as t
from schemas.codec import Codec
from schemas.enums import AnomalyState
from schemas.kafka.connection import KafkaSettings

GB: Final = 1e9
MB: Final = 1e6
# 5,000 hosts with 8 RNICs; 250,000 results a second are as many 5-tuples, a window each in 30 s.
HOSTS: Final = 5_000
WINDOWS_A_SECOND: Final = 8_333
SMALL: Final = 16
VIEWERS: Final = 100
PAGES: Final = ("now", "agents", "matrix")
JOB: Final = "counters?task=job-0"
COUNTED: Final = (JOB, f"{JOB}&host=h1", f"{JOB}&endpoint=w0%2Fr1", f"{JOB}&endpoint=w9%2Fr0")
FAULTS: Final = 1_000
FED_S: Final = 30
BEHIND_S: Final = 120.0
VERDICTS: Final = 20
# Cards that the page draws at once.
CARDS: Final = 60
PARTITIONS: Final = 4
# A leaf with 256 RNICs below it, of 2,048, is down for an hour.
HOUR_S: Final = 3_600
BAD_FLOWS: Final = 256
REVIEW_HOSTS: Final = 256
# What an RNIC of the cluster sends.
RNIC_MBPS: Final = 800.0
CODEC: Final = Codec()
NAMES: Final = 10_000
SHOWN_NAMES: Final = 200
SEED: Final = 20_261_125
PIECES: Final = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"', "'", "`", "</style>", "<!--",
    "${7*7}", "{{7*7}}", "javascript:", "\u202e", "\u2066", "\u0000", "\n", "%00", "%3Cscript%3E",
    "../../etc/passwd", "\\", "&lt;", "=cmd|' /C calc'!A0", "a" * 40, "日本", "\U0001f4a5",
    "]]>", ")",
)  # fmt: skip


@contextmanager
def topics() -> Iterator[KafkaSettings]:
    """Give a broker of one's own with all topics."""
    with EmbeddedKafka(announce=False) as kafka:
        settings = KafkaSettings(bootstrap=kafka.bootstrap)
        apply_topics(settings, Options())
        yield settings


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 10**6


def open_faults(count: int) -> list[Told]:
    """Return so many faults that are open."""
    events = (cluster.fault(number, now_ms()) for number in range(count))
    return [(t.FAULT_EVENT, event.fault_id, event) for event in events]


def latency(runs: int, say: Say) -> list[Figure]:
    """Write verdicts one by one, and look for each in the browser."""
    took_s: list[float] = []
    with topics() as kafka, site("--bootstrap", kafka.bootstrap) as web, browser() as chromium:
        writer = Writer(kafka)
        writer.write(cluster.standing(SMALL, now_ms()))
        web.wait_ready()
        page = chromium.new_page()
        page.goto(web.url)
        page.get_by_role("heading", level=1).wait_for()
        for number in range(runs * VERDICTS):
            event = cluster.fault(number, now_ms())
            writer.write([(t.FAULT_EVENT, event.fault_id, event)])
            began_s = time.monotonic()
            page.locator(f'[data-fault="{event.fault_id}"]').wait_for()
            took_s.append(time.monotonic() - began_s)
    say(f"{len(took_s)} verdicts, the slowest after {max(took_s):.2f} s")
    return [figure("verdict on its topic → on the page, worst", took_s, "s", 1.0, worst=True)]


def first_paint(runs: int, say: Say) -> list[Figure]:
    """Time the page Now with a thousand open faults, until its cards stand there."""
    took_s: list[float] = []
    with topics() as kafka, site("--bootstrap", kafka.bootstrap) as web, browser() as chromium:
        Writer(kafka).write([*cluster.standing(SMALL, now_ms()), *open_faults(FAULTS)])
        web.wait_ready()
        for _ in range(runs):
            context = chromium.new_context()
            page = context.new_page()
            began_s = time.monotonic()
            page.goto(web.url, wait_until="commit")
            page.locator(".fault").nth(CARDS - 1).wait_for()
            took_s.append(time.monotonic() - began_s)
            context.close()
    say(f"{', '.join(f'{s:.2f}' for s in took_s)} s")
    return [figure(f"first paint: Now with {FAULTS:,} open faults", took_s, "s", 1.0)]


def process(runs: int, say: Say) -> list[Figure]:
    """Run a server at 40,000 RNICs and 250,000 results a second, with a hundred streams."""
    del runs
    expected = HOSTS * cluster.RAILS * cluster.TARGETS * cluster.FLOWS
    with topics() as kafka:
        writer = Writer(kafka)
        writer.write(cluster.standing(HOSTS, now_ms()))
        beats = ((t.HEARTBEAT, cluster.agent_name(h), h) for h in range(HOSTS))
        writer.write((topic, key, cluster.heartbeat(h, now_ms())) for topic, key, h in beats)
        say("the cluster is written")
        began_s = time.monotonic()
        with site("--bootstrap", kafka.bootstrap) as web:
            web.wait_ready()
            ready_s = time.monotonic() - began_s
            writer.write(open_faults(FAULTS))
            pages = (*COUNTED, *islice(cycle(PAGES), VIEWERS - len(COUNTED)))
            for page in pages:
                stream = web.stream(page)
                threading.Thread(target=_drain, args=(stream,), daemon=True).start()
            time.sleep(3)
            # Others' are not looked into: they stand for all their seconds.
            idle = [_encoded(host) for host in range(HOSTS)]
            used_s = cpu_s(web.process.pid)
            for second in range(FED_S):
                until_s = time.monotonic() + 1.0
                writer.write(_second(second))
                writer.write(_counters(idle))
                time.sleep(max(0.0, until_s - time.monotonic()))
            # What it is behind by is work of those seconds, too.
            wait_until(
                lambda: web.document("matrix")["flows"] == expected,
                BEHIND_S, "skeletonhunter web does not catch up", poll_s=2.0,
            )  # fmt: skip
            # By seconds of the cluster: a writer that is too slow makes no second cheaper.
            share = (cpu_s(web.process.pid) - used_s) / FED_S
            used = memory(web.process.pid)
            shown = web.document("now")
            agents = web.document("agents")
            matrix = web.document("matrix")
            counted = web.document(JOB)["rnics"]
        say(f"{share:.2f} of a core, {used.peak_bytes / MB:,.0f} MB, ready after {ready_s:.1f} s")
    wrong = len(shown["open"].keys() ^ {f"f-{n}" for n in range(FAULTS)})
    wrong += abs(shown["open_total"] - FAULTS) + abs(agents["total"] - HOSTS)
    wrong += abs(agents["clusters"][CLUSTER]["expected"] - expected)
    wrong += abs(matrix["flows"] - expected)
    wrong += sum(one.get("tx_mbps") != RNIC_MBPS for one in counted.values())
    wrong += abs(len(counted) - MAX_HOSTS * cluster.RAILS)
    where = f"{HOSTS * cluster.RAILS:,} RNICs, 250,000 results/s, {VIEWERS} pages"
    return [
        figure(f"web process, {where}: share of a core", [share], "cores", 0.5),
        figure("… memory, peak", [used.peak_bytes / GB], "GB", 1.5),
        figure("… faults, agents, 5-tuples shown otherwise than written", [wrong], "", 0),
        figure("start to ready at that size", [ready_s], "s", 30),
    ]


def _second(second: int) -> Iterator[Told]:
    """Yield what a cluster says in a second, but its rounds: the page does not read them."""
    at_ms = now_ms()
    for host in range(HOSTS):
        yield t.HEARTBEAT, cluster.agent_name(host), cluster.heartbeat(host, at_ms)
    flows = cluster.RAILS * cluster.TARGETS * cluster.FLOWS
    for number in range(WINDOWS_A_SECOND):
        host, flow = divmod(second * WINDOWS_A_SECOND + number, flows)
        one = cluster.window(host % HOSTS, HOSTS, flow, at_ms // 30_000 * 30_000)
        yield t.PROBE_WINDOW, one.path_id, one
    for partition in range(PARTITIONS):
        yield t.ANOMALY, f"progress-{partition}", cluster.progress(partition, at_ms - 1_500)


def _encoded(host: int) -> Told:
    one = cluster.counters(host, now_ms())
    return t.RNIC_COUNTERS, one.agent_id, CODEC.encode(t.RNIC_COUNTERS, one)


def _counters(idle: Sequence[Told]) -> Iterator[Told]:
    """Yield a second's counters of all hosts; anew those of a job's hosts that are looked at."""
    looked = {cluster.agent_name(host) for host in range(cluster.HOSTS_OF_A_JOB)}
    for host, told in enumerate(idle):
        yield _encoded(host) if told[1] in looked else told


def _drain(stream: HTTPResponse) -> None:
    with suppress(OSError, HTTPException, ValueError):
        while stream.read1(65_536):
            pass


def review(runs: int, say: Say) -> list[Figure]:
    """Report an hour in which a leaf is down, as one HTML file."""
    took_s, sizes_mb = [], []
    with scratch_folder() as folder:
        _write_hour(folder)
        say("the hour is written")
        for _ in range(runs):
            began_s = time.process_time()
            with Source(folder, OF_INCIDENTS) as recording:
                found = incidents(RecordedSource(recording, only=OF_INCIDENTS), [])
            text = to_html(found.documents, found.commands)
            took_s.append(time.process_time() - began_s)
            sizes_mb.append(len(text.encode()) / MB)
    say(f"{took_s[-1]:.1f} s, {sizes_mb[-1]:.2f} MB")
    return [
        figure("incident of an hour, 2,048 RNICs: report (CPU)", took_s, "s", 30),
        figure("… its file", sizes_mb, "MB", 5),
    ]


def _write_hour(folder: Path) -> None:
    codec = Codec()
    manifest = Manifest(cluster=CLUSTER, recorded_at="", from_ms=None, to_ms=None)
    writer = RecordingWriter(folder, manifest, codec)
    for topic in t.TOPICS:
        writer.add_topic(topic, 1)
    offsets: Counter[str] = Counter()
    for at_ms, (topic, key, record) in _hour():
        entry = Entry(
            partition=0, offset=offsets[topic.name], timestamp_ms=at_ms, key=key.encode(),
            value=codec.encode(topic, record),
        )  # fmt: skip
        offsets[topic.name] += 1
        writer.write_entry(topic, entry)
    writer.close(complete=True)


def _hour() -> Iterator[tuple[int, Told]]:
    """Yield an hour of one fault: symptoms, marks, traces and transitions, in order of time."""
    start_ms = 1_767_225_600_000
    for told in cluster.standing(REVIEW_HOSTS, start_ms):
        yield start_ms, told
    for second in range(HOUR_S):
        at_ms = start_ms + second * 1_000
        for partition in range(PARTITIONS):
            mark = cluster.progress(partition, at_ms)
            yield at_ms, (t.ANOMALY, f"progress-{partition}", mark)
        for host in range(second % 5, BAD_FLOWS, 5):
            state = AnomalyState.ONSET if second < 5 else AnomalyState.ONGOING
            one = cluster.anomaly(host, REVIEW_HOSTS, at_ms, state, start_ms + host % 5 * 1_000)
            yield at_ms, (t.ANOMALY, one.path_id, one)
        for host in range(second % 10, BAD_FLOWS, 10):
            way = cluster.trace(host, REVIEW_HOSTS, at_ms)
            yield at_ms, (t.PATH_TRACE, way.path_id, way)
        if second % 60 == 6:
            event = cluster.fault(0, at_ms, seq=second // 60 + 1)
            yield at_ms, (t.FAULT_EVENT, event.fault_id, event)


def hostile(runs: int, say: Say) -> list[Figure]:
    """Ask for, show and report names made of markup, quotes and what cannot be seen."""
    del runs
    draw = random.Random(SEED)  # noqa: S311 - the same names each time
    names = ["".join(draw.choices(PIECES, k=draw.randint(1, 5))) for _ in range(NAMES)]
    failed = executed = 0
    with topics() as kafka, site("--bootstrap", kafka.bootstrap) as web, browser() as chromium:
        events = [cluster.fault(n, now_ms(), name=name) for n, name in enumerate(names)]
        Writer(kafka).write((t.FAULT_EVENT, e.fault_id, e) for e in events[:SHOWN_NAMES])
        web.wait_ready()
        for number, name in enumerate(names):
            asked = {"fault": name if number % 2 else f"f-{number % SHOWN_NAMES}", "from": name}
            path = ("/api/pages/incident", "/api/report.html", "/api/report.md")[number % 3]
            asked = asked if number % 4 == 3 else {"fault": asked["fault"]}
            status, text = web.get(f"{path}?{urlencode(asked)}")
            failed += status >= 500
            if path.endswith("html") and status == 200:
                executed += "<script" in text or "<img" in text
        page = chromium.new_page()
        said: list[str] = []

        def heard(dialog: Any) -> None:
            said.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", heard)
        page.goto(web.url)
        page.get_by_role("button", name="more open fault").click()
        page.locator(".fault").nth(SHOWN_NAMES - 1).wait_for()
        executed += len(said) + page.locator("#main img, #main script").count()
    say(f"{NAMES:,} requests, {SHOWN_NAMES:,} names on one page")
    return [
        figure(f"hostile names, URLs, ids ({NAMES:,}): answers with 500", [failed], "", 0),
        figure("… executed, or markup", [executed], "", 0),
    ]


PARTS: Final[Parts] = {
    "latency": latency, "first_paint": first_paint, "process": process, "review": review,
    "hostile": hostile,
}  # fmt: skip
