"""The bridge with real Kafka and a real Alertmanager: each fault paged once and resolved once."""

import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from ops.bench.operator.receivers import ALERTMANAGER, Post, Receiver, alertmanager, receiving
from ops.bridge.targets.webhook import signed
from ops.log.writing import LogWriter
from ops.running.pipeline import to_toml
from ops.running.processes import Child, ProcessGroup
from schemas import topics
from schemas.bounds import MAX_TIME_US
from schemas.codec import Codec
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent, FaultState, Silence
from schemas.topics import Topic
from tests.certificates import make_certificates
from tests.unit.ops.bridge.made import silence, transition

pytestmark = [pytest.mark.broker, pytest.mark.slow]

needs_alertmanager = pytest.mark.skipif(
    ALERTMANAGER is None,
    reason="no Alertmanager: Debian's package prometheus-alertmanager has it",
)
TIMEOUT_S = 120.0
HOLD_S = 2
# Of bridges that lead; `python -m ops.bench operator --only bridge` kills fifty.
KILLS = 3
SECRET = "a key of the test"  # noqa: S105


def until(what: str, found: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> Any:
    """Return what is found, once there is something."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {timeout_s:.0f} s")


class Bench:
    """A bridge, the topics before it and the settings of its targets."""

    def __init__(self, kafka: KafkaSettings, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.group = ProcessGroup(folder / "logs")
        self._writer = LogWriter(kafka)
        self._codec = Codec()
        self.config = folder / "bridge.toml"
        self._starts = 0

    def configure(self, *targets: dict[str, Any], **settings: Any) -> None:
        """Write the settings."""
        kafka = {
            "bootstrap.servers": self.kafka.bootstrap, "topic.prefix": self.kafka.topic_prefix,
            "cluster": self.kafka.cluster,
        }  # fmt: skip
        bridge = {"resolve_hold_s": HOLD_S, "resend_s": 5, "storm_faults": 1000, **settings}
        text = to_toml({"kafka": kafka, "bridge": bridge})
        for target in targets:
            text += "\n[[bridge.target]]\n"
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in target.items())
        self.config.write_text(text)

    def write(self, topic: Topic, key: str, record: FaultEvent | FaultState | Silence) -> None:
        """Write a record."""
        self._writer.write(
            self.kafka.topic(topic.name), key=key.encode(),
            value=self._codec.encode(topic, record), timestamp_ms=None,
        )  # fmt: skip

    def fault(self, event: FaultEvent) -> None:
        """Write a transition."""
        self.write(topics.FAULT_EVENT, event.fault_id, event)

    def flush(self) -> None:
        """Wait until all is written."""
        self._writer.flush()

    def start(self) -> Child:
        """Start a bridge."""
        self._starts += 1
        return self.group.start(f"bridge-{self._starts}", self.command())

    def ready(self) -> Child:
        """Start a bridge, and wait until it has read what is there."""
        child = self.start()
        deadline = time.monotonic() + TIMEOUT_S
        while not child.events("bridge.ready"):
            assert child.running, child.log_tail()
            assert time.monotonic() < deadline, child.log_tail()
            time.sleep(0.05)
        return child

    def command(self, *more: str) -> list[str]:
        """Return the command of a bridge."""
        return [
            sys.executable,
            "-m",
            "ops.bridge",
            "--config",
            str(self.config),
            "--log-json",
            *more,
        ]


@pytest.fixture
def bench(kafka: KafkaSettings, tmp_path: Path) -> Iterator[Bench]:
    """Give a bench; its bridges end with it."""
    bench = Bench(kafka, tmp_path)
    with bench.group:
        yield bench


def lab(event: FaultEvent, bench: Bench) -> FaultEvent:
    """Return a transition of the test's cluster."""
    return FaultEvent(**{**fields(event), "cluster": bench.kafka.cluster})


def fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record."""
    return {name: getattr(record, name) for name in record.__slots__}


def told(receiver: Receiver) -> dict[str, Counter[str]]:
    """Return how often Alertmanager told of each fault, by status."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for post in list(receiver.posts):
        for alert in post.json["alerts"]:
            found[alert["labels"]["fault_id"]][alert["status"]] += 1
    return found


@needs_alertmanager
def test_a_fault_is_told_to_every_kind_of_target_and_then_its_end(
    bench: Bench, tmp_path: Path
) -> None:
    """Within two seconds at Alertmanager's receiver; PagerDuty by TLS; a webhook signed."""
    files = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server_pem)
    (tmp_path / "key").write_text(SECRET)
    with (
        receiving(Receiver()) as hooks,
        receiving(Receiver()) as people,
        receiving(Receiver(), context) as duty,
        alertmanager(tmp_path / "am", people) as address,
    ):
        bench.configure(
            {"type": "alertmanager", "url": address},
            {"type": "pagerduty", "url": f"{duty.url}/v2/enqueue", "ca_file": str(files.ca),
             "routing_key_file": str(tmp_path / "key")},
            {"type": "webhook", "url": f"{hooks.url}/hook", "secret_file": str(tmp_path / "key")},
            {"type": "webhook", "name": "binary", "url": f"{hooks.url}/bin", "mode": "binary"},
            page_url="https://pages/{cluster}/{fault_id}",
        )  # fmt: skip
        child = bench.ready()
        began_s = time.monotonic()
        bench.fault(lab(transition("f-1", 1), bench))
        bench.flush()
        until("a page", lambda: told(people)["f-1"]["firing"])
        paged_s = time.monotonic() - began_s
        bench.fault(lab(transition("f-1", 2, FaultLifecycle.RESOLVED), bench))
        bench.flush()
        until("its end", lambda: told(people)["f-1"]["resolved"])
        until("four events", lambda: len(hooks.posts) == 4)
        until("PagerDuty", lambda: len(duty.posts) == 2)
    (alert,) = people.posts[0].json["alerts"]
    assert alert["labels"]["severity"] == "critical"
    assert alert["annotations"]["page_url"] == f"https://pages/{bench.kafka.cluster}/f-1"
    assert alert["annotations"]["evidence"] == "12 of 12 probes lost"
    assert told(people)["f-1"] == {"firing": 1, "resolved": 1}
    assert [p.json["event_action"] for p in duty.posts] == ["trigger", "resolve"]
    assert {p.json["dedup_key"] for p in duty.posts} == {"f-1"}
    structured = [p for p in hooks.posts if p.path == "/hook"]
    binary = [p for p in hooks.posts if p.path == "/bin"]
    assert [p.json["id"] for p in structured] == ["f-1/1", "f-1/2"]
    assert [p.headers["ce-id"] for p in binary] == ["f-1/1", "f-1/2"]
    for post in structured:
        at_s = int(post.headers["webhook-timestamp"])
        assert signed(post.json["id"], at_s, post.body, SECRET).items() <= post.headers.items()
    assert SECRET not in child.log.read_text()
    print(f"verdict on its topic to Alertmanager's receiver: {paged_s:.2f} s")
    assert paged_s < 5


def test_a_target_that_is_dead_delays_no_other_and_gets_all_when_it_is_back(
    bench: Bench,
) -> None:
    """Also over a restart: positions are in Kafka."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with receiving(Receiver()) as alive:
        bench.configure(
            {"type": "webhook", "name": "alive", "url": alive.url},
            {"type": "webhook", "name": "dead", "url": f"http://127.0.0.1:{port}"},
        )
        child = bench.ready()
        for n in range(20):
            bench.fault(lab(transition(f"f-{n}", 1), bench))
        bench.flush()
        until("20 at the one", lambda: len(alive.posts) == 20, 20.0)
        child.process.kill()
        child.process.wait()
        with receiving(Receiver()) as back:
            bench.configure(
                {"type": "webhook", "name": "alive", "url": alive.url},
                {"type": "webhook", "name": "dead", "url": back.url},
            )
            child = bench.ready()
            until("20 at the other", lambda: len(ids(back)) == 20)
            time.sleep(1)
        assert len(ids(alive)) == 20


def ids(receiver: Receiver) -> Counter[str]:
    """Return how often each event came."""
    return Counter(post.headers["idempotency-key"] for post in list(receiver.posts))


def test_dry_run_prints_what_would_be_sent(bench: Bench) -> None:
    """And sends nothing; no secret is in it."""
    with receiving(Receiver()) as nobody:
        bench.configure({"type": "alertmanager", "url": nobody.url, "mirror_silences": True},
                        {"type": "webhook", "url": nobody.url})  # fmt: skip
        later = replace(silence("s-1", 0, 1, task="a"), cluster=bench.kafka.cluster,
                        from_at=MAX_TIME_US - 1, until_at=MAX_TIME_US)  # fmt: skip
        bench.write(topics.SILENCE, "s-1", later)
        bench.fault(lab(transition("f-1", 1), bench))
        bench.flush()
        done = subprocess.run(
            bench.command("--dry-run"), capture_output=True, text=True, check=True, timeout=60
        )
        printed = [json.loads(line) for line in done.stdout.splitlines()]
        assert [post["target"] for post in printed] == [
            "alertmanager", "alertmanager-silences", "webhook",
        ]  # fmt: skip
        assert printed[0]["body"][0]["labels"]["fault_id"] == "f-1"
        assert printed[1]["body"]["comment"].endswith(" s-1]")
        assert printed[2]["body"]["id"] == "f-1/1"
        assert nobody.posts == []


def test_silences_and_notes_of_the_command_line(bench: Bench) -> None:
    """A silence hides the page until it ends; closing ends it; who did it is on record."""

    def run(*arguments: str) -> Any:
        kafka = ["--config", str(bench.config), "--json"]
        program = [sys.executable, "-c", "from ops.cli.app import main; main()"]
        done = subprocess.run(
            [*program, *arguments, *kafka], capture_output=True, text=True, check=True, timeout=60
        )
        return json.loads(done.stdout)

    with receiving(Receiver()) as hook:
        bench.configure({"type": "alertmanager", "url": hook.url})
        (made,) = run(
            "silence", "add", "component=link:*", "--reason", "new optics", "--author", "ann"
        )
        for name in ("f-1", "f-2"):
            bench.fault(lab(transition(name, 1), bench))
            state = FaultState(**fields(lab(transition(name, 1), bench)))
            bench.write(topics.FAULT_STATE, name, state)
        bench.flush()
        bench.ready()
        time.sleep(2)
        assert hook.posts == []
        assert [s["silence_id"] for s in run("silence", "list")] == [made["silence_id"]]
        (ended,) = run("silence", "expire", made["silence_id"], "--author", "bob")
        assert (ended["state"], ended["ended_by"]) == ("ended", "bob")
        assert run("silence", "list") == []
        until("both pages", lambda: open_alerts(hook) == {"f-1", "f-2"})
        run("incident", "ack", "f-1", "--author", "ann")
        run("incident", "close", "f-2", "--cause", "dirty optics", "--author", "ann")
        until("one page", lambda: open_alerts(hook) == {"f-1"})
        (alert,) = [a for a in hook.posts[-1].json if a["labels"]["fault_id"] == "f-1"]
        assert alert["annotations"]["acknowledged_by"] == "ann"
        (noted,) = run("incident", "notes", "f-2")
        assert (noted["action"], noted["cause"]) == ("close", "dirty optics")


@needs_alertmanager
def test_silences_are_mirrored_to_alertmanager(bench: Bench, tmp_path: Path) -> None:
    """Made once, also over a restart, known to be ours, and ended; the end of a page is told."""

    def mirrored(address: str) -> list[Any]:
        with urlopen(f"{address}/api/v2/silences", timeout=5) as answer:  # noqa: S310
            return [s for s in json.load(answer) if s["status"]["state"] != "expired"]

    with receiving(Receiver()) as people, alertmanager(tmp_path / "am", people) as address:
        bench.configure({"type": "alertmanager", "url": address, "mirror_silences": True})
        child = bench.ready()
        bench.fault(lab(transition("f-1", 1), bench))
        bench.flush()
        until("a page", lambda: told(people)["f-1"]["firing"])
        now_us = time.time_ns() // 1_000
        hidden = replace(
            silence("s-1", 0, 1, component="link:*"),
            cluster=bench.kafka.cluster, from_at=now_us, until_at=now_us + 3_600 * 10**6,
        )  # fmt: skip
        bench.write(topics.SILENCE, "s-1", hidden)
        bench.flush()
        (one,) = until("a silence", lambda: mirrored(address))
        assert (one["createdBy"], one["status"]["state"]) == ("SkeletonHunter: ann", "active")
        assert one["comment"] == f"maintenance [skeletonhunter {bench.kafka.cluster} s-1]"
        until("the page's end", lambda: told(people)["f-1"]["resolved"])
        child.process.kill()
        child.process.wait()
        child = bench.ready()
        time.sleep(2)
        assert [s["id"] for s in mirrored(address)] == [one["id"]]
        bench.write(topics.SILENCE, "s-1", replace(hidden, until_at=now_us + 1, ended_by="bob"))
        bench.flush()
        until("no silence", lambda: not mirrored(address))


def states_of(post: Post, fault_id: str) -> list[bool]:
    """Return whether a post says that a fault's page is open; nothing if it does not name it."""
    at = datetime.fromtimestamp(post.at_s, UTC).isoformat()
    return [a["endsAt"] > at for a in post.json if a["labels"]["fault_id"] == fault_id]


def open_alerts(receiver: Receiver) -> set[str]:
    """Return the faults of which the last post says that they are open."""
    now = datetime.now(UTC).isoformat()
    last = receiver.posts[-1].json if receiver.posts else []
    return {alert["labels"]["fault_id"] for alert in last if alert["endsAt"] > now}


@pytest.mark.timeout(3_600)
@needs_alertmanager
def test_killed_in_a_storm_with_targets_failing_half_of_the_time(
    bench: Bench, tmp_path: Path
) -> None:
    """Each fault is paged once and resolved once at the receivers, none is missing.

    Two bridges run; each time that the one that leads is killed or hangs, the other goes on.
    """
    chance = random.Random(3)
    faults = [f"f-{n:03}" for n in range(100)]
    with receiving(Receiver()) as people, alertmanager(tmp_path / "am", people) as address:

        def pass_on(post: Post) -> None:
            request = Request(address + post.path, post.body, {"content-type": "application/json"})  # noqa: S310
            with urlopen(request, timeout=10):  # noqa: S310
                pass

        with (
            receiving(Receiver(failing=0.5, forward=pass_on)) as before_alertmanager,
            receiving(Receiver(failing=0.5)) as hook,
        ):
            bench.configure(
                {"type": "alertmanager", "url": before_alertmanager.url},
                {"type": "webhook", "url": hook.url},
                resolve_hold_s=5, resend_s=20,
            )  # fmt: skip
            leader = bench.ready()
            until("a leader", lambda: leader.events("bridge.leading"))
            standby = bench.ready()
            written = 0
            for kill in range(KILLS):
                # Half are open at first; then all change, some often; at last all end.
                share = faults if kill else faults[:50]
                for name in chance.sample(share, 50):
                    written += 1
                    event = transition(name, 1 + kill, FaultLifecycle.UPDATED, bad_paths=written)
                    bench.fault(lab(event, bench))
                bench.flush()
                time.sleep(chance.uniform(0.2, 2.5))
                # The second one only hangs.
                leader.process.send_signal(signal.SIGSTOP if kill == 1 else signal.SIGKILL)
                before, leader, standby = leader, standby, bench.start()
                until("a leader", partial(leader.events, "bridge.leading"), 10)
                before.process.send_signal(signal.SIGCONT)
                assert before.process.wait(20) == (3 if kill == 1 else -signal.SIGKILL)
            for name in faults:
                bench.fault(lab(transition(name, 100, FaultLifecycle.UPDATED), bench))
            bench.flush()
            until("all pages", lambda: all(told(people)[f]["firing"] for f in faults))
            for name in faults:
                bench.fault(lab(transition(name, 101, FaultLifecycle.RESOLVED), bench))
            bench.flush()
            until("all ends", lambda: all(told(people)[f]["resolved"] for f in faults))
            last = {f"{name}/101" for name in faults}
            # One after the other, and each twice on average.
            until("all events", lambda: ids(hook).keys() >= last, TIMEOUT_S + 10 * KILLS)
            assert before_alertmanager.failed > 0
            assert hook.failed > 0
    came = sorted(before_alertmanager.posts, key=lambda post: post.at_s)
    for name in faults:
        # Open, and at last over: Alertmanager was never told that an ended page is open again.
        states = [open_ for post in came for open_ in states_of(post, name)]
        assert states == sorted(states, reverse=True)
        assert {True, False} == set(states)
    # On a busy machine Alertmanager may take a post that was given up, and tried again, after the
    # one that came later: it then tells of a page twice by itself. Of few.
    told_once = [dict(told(people)[name]) == {"firing": 1, "resolved": 1} for name in faults]
    assert sum(told_once) > len(faults) // 2
    assert len(ids(hook)) == written + 2 * len(faults)
