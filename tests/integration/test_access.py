"""Every process works with its planned ACLs alone, by password and by certificate.

Whoever is refused, or does not get in, is told what to do.
"""

import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Message, Producer

from ops.acl.admin import AclAdmin, Difference
from ops.acl.plan import ROLES, Names, grants, principals_of_roles
from ops.broker.embedded import EmbeddedKafka
from ops.broker.ready import answers
from ops.cli.app import main as run_command
from ops.running.processes import Child, ProcessGroup
from ops.topics.admin import apply_topics
from ops.web.security import ACTION_HEADER
from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.process.ending import EXIT_CODE, LIMIT_S
from schemas.topics import TOPICS
from tests.integration.secure_kafka import (
    CERTIFICATE,
    CLUSTER,
    FIRST_USER,
    SCRAM,
    SecureKafka,
    api,
    secure_kafka,
)

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]
MODULES = {
    "worker": "streams",
    "localizer": "localizer",
    "skeleton": "skeleton_job",
    "agent": "probers",
    "bridge": "ops.bridge",
}
# Nobody listens there: a bridge is ready all the same, and keeps its position in Kafka.
TARGET = """
[[bridge.target]]
name = "tickets"
type = "webhook"
url = "http://127.0.0.1:9/faults"
"""
READY = {
    "bridge": "bridge.ready",
    "worker": "worker.ready",
    "localizer": "localizer.ready",
    "skeleton": "skeleton.ready",
    "agent": "topics.assigned",
}
TASK = """
task_id = "job1"
containers = [
  { container_id = "w1", host_id = "h1", agent_id = "agent-h1", rails = 1 },
  { container_id = "w2", host_id = "h2", agent_id = "agent-h2", rails = 1 },
]
"""
WAIT_S = 120.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Run the broker with all topics, and with the planned ACLs of every role."""
    with secure_kafka(tmp_path_factory.mktemp("secure")) as secure:
        apply_topics(secure.super_user)
        command(secure, "acl", "apply")
        yield secure


def command(kafka: SecureKafka, *arguments: str, user: str | None = None) -> tuple[int, str]:
    """Run a command by a user, None: a super user; return exit code and output.

    In this process: another one would import everything again.
    """
    if user is None:
        config = kafka.folder / "super.toml"
        config.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.broker.bootstrap}"\ncluster = "{CLUSTER}"\n'
        )
    else:
        config = kafka.config(user)
    return run(*arguments, "--config", str(config))


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in this process."""
    said = io.StringIO()
    with (
        patch("sys.argv", ["skeletonhunter", *arguments]),
        redirect_stdout(said),
        redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        run_command()
    return int(ended.value.code or 0), said.getvalue()


def start(group: ProcessGroup, role: str, config: Path, number: int = 1) -> Child:
    """Start a process with a config file; agents have numbers."""
    argv = [sys.executable, "-m", MODULES[role], "--config", str(config), "--log-json"]
    if role != "agent":
        return group.start(role, argv)
    where = ["--host-id", f"h{number}", "--container-id", f"w{number}"]
    return group.start(f"agent{number}", [*argv, *where, "--rnic", "rail=0,address=127.0.0.1"])


def wait(condition: Callable[[], object], what: str, *children: Child) -> None:
    """Wait until it holds; fail when a process ends or it takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        for child in children:
            assert child.running, f"{child.name} ended:\n{child.log_tail()}"
        assert time.monotonic() < deadline, what + "\n".join(c.log_tail() for c in children)
        time.sleep(0.1)


def committed(kafka: SecureKafka, group: str) -> list[Any]:
    """Return what a group has committed, as the broker tells a super user."""
    client = api.AdminClient(kafka.super_user.librdkafka())
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places: list[Any] = asked[group].result().topic_partitions
    return [place for place in places if place.offset >= 0]


@contextmanager
def frozen(broker: EmbeddedKafka) -> Iterator[None]:
    """Stop the broker's JVM in its tracks; its port stays open."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def refusals(child: Child) -> list[str]:
    """Return the sentences with which a process ended; librdkafka logs its own between them."""
    text = child.log.read_text(encoding="utf-8")
    return re.findall(r"skeletonhunter [a-z ]+: (Kafka at .*? refuses .*?`.*?`)", text)


def refused_topics(settings: KafkaSettings) -> set[str]:
    """Return the topics, dead letters among them, to which a user may not write."""
    names = [name for topic in TOPICS for name in (topic.name, topic.dlq)]
    refused: set[str] = set()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error.str()
            refused.add(str(message.topic()))

    producer = Producer({**settings.librdkafka(), "log_level": 0})
    for name in names:
        producer.produce(name, value=None, key="probe", on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    return refused


@pytest.mark.parametrize("login", [SCRAM, CERTIFICATE])
def test_every_process_works_with_its_planned_acls(
    kafka: SecureKafka, tmp_path: Path, login: str
) -> None:
    """Agent, worker, skeleton job, localizer and bridge get ready; nothing is refused to them.

    Told to, they end, also while the broker takes connections and answers nothing.
    """
    task = tmp_path / "task.toml"
    task.write_text(TASK, encoding="utf-8")

    def config(role: str) -> Path:
        tables = TARGET if role == "bridge" else ""
        return kafka.config(f"skeletonhunter-{role}", login, tables)

    with ProcessGroup(tmp_path) as group:
        processes = {role: start(group, role, config(role)) for role in MODULES}
        processes["agent2"] = start(group, "agent", config("agent"), 2)
        children = tuple(processes.values())
        for role, event in READY.items():
            child = processes[role]
            wait(partial(child.events, event), f"{role} ready", *children)
        began_ns = time.time_ns()
        taken = sum(place.offset for place in committed(kafka, "skeletonhunter-worker"))
        code, said = run("task", "submit", str(task), "--config", str(config("scheduler")))
        assert code == 0, said

        def decided() -> bool:
            rounds = sum(place.offset for place in committed(kafka, "skeletonhunter-worker"))
            marks = [place.metadata for place in committed(kafka, f"localizer-{CLUSTER}")]
            times = [int(mark) for mark in marks if mark and mark.isdigit()]
            return rounds > taken and bool(times) and min(times) > began_ns

        # The skeleton job's lists reach the agents, their rounds the worker, its marks the
        # localizer.
        wait(decided, "rounds are decided", *children)
        for child in children:
            text = child.log.read_text(encoding="utf-8")
            assert "uthorization" not in text, child.log_tail()
            assert " refuses " not in text, child.log_tail()
        with frozen(kafka.broker) if login == CERTIFICATE else nullcontext():
            for child in children:
                child.process.terminate()
            endings = {0} if login == SCRAM else {0, EXIT_CODE}
            for child in children:
                assert child.process.wait(LIMIT_S + 10) in endings, child.log_tail()


@pytest.mark.parametrize("login", [SCRAM, CERTIFICATE])
def test_forbidden_writes_are_refused(kafka: SecureKafka, login: str) -> None:
    """A principal writes to the topics of its plan, and to no other."""
    every = {name for topic in TOPICS for name in (topic.name, topic.dlq)}
    assert set(ROLES) == set(principals_of_roles())
    for role, who in principals_of_roles().items():
        (grant,) = grants({role: who}, Names(cluster=CLUSTER))
        allowed = {r.name for r in grant.rules if r.operation == "Write" and r.kind == "topic"}
        refused = refused_topics(kafka.settings(who.removeprefix("User:"), login))
        assert refused == every - allowed, role


def test_a_common_name_that_looks_like_a_subject_is_nobody(kafka: SecureKafka) -> None:
    """What begins with another's name does not get that one's rights."""
    refused = refused_topics(kafka.settings("skeletonhunter-worker\\,O=Elsewhere", CERTIFICATE))
    assert {topic.name for topic in TOPICS} <= refused


LACKING = {
    "worker": ("group", "Read of group skeletonhunter-worker"),
    "localizer": ("group", f"Read of group localizer-{CLUSTER}"),
    "skeleton": ("group", f"Read of group skeleton-{CLUSTER}"),
    "localizer2": ("transactional-id", f"Write of transactional id localizer-{CLUSTER}"),
}


def test_a_refused_process_ends_and_says_what_to_do(kafka: SecureKafka, tmp_path: Path) -> None:
    """A process names principal, operation, resource and command; exit code 3.

    One group of them has no ACLs at all. To those of another all topics are granted and one thing
    is not: they do not stand still, but end. All run at once, since they mostly wait.
    """
    with ProcessGroup(tmp_path) as group:
        strangers = {
            role: start(group, role, kafka.config("stranger", tables=TARGET)) for role in MODULES
        }
        for role, child in strangers.items():
            assert child.process.wait(WAIT_S) == 3, child.log_tail()
            (said,) = refusals(child)
            assert f"Kafka at {kafka.broker.login_bootstrap} refuses User:stranger: " in said
            assert re.search(r": (Describe|Read|Write) of (topics?|group) [a-z]", said), said
            assert f"`skeletonhunter acl apply --for {role}=User:stranger`" in said


def test_a_group_or_transactional_id_that_is_refused_is_named(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    """All topics are granted, one thing is not: the process does not stand still, but ends."""
    admin = AclAdmin(kafka.super_user)
    with ProcessGroup(tmp_path) as group:
        children = {}
        for name, (kind, expected) in LACKING.items():
            role, user = name.rstrip("2"), f"{name}-without-{kind}"
            (grant,) = grants({role: f"User:{user}"}, Names(cluster=CLUSTER))
            rules = tuple(r for r in grant.rules if r.kind != kind)
            admin.add([Difference(principal=f"User:{user}", missing=rules, beyond=())])
            argv = [sys.executable, "-m", MODULES[role], "--config", str(kafka.config(user))]
            children[f"refuses User:{user}: {expected}. "] = group.start(
                name, [*argv, "--log-json"]
            )
        for expected, child in children.items():
            assert child.process.wait(WAIT_S) == 3, child.log_tail()
            (said,) = refusals(child)
            assert expected in said


def test_an_agent_without_a_topic_that_it_can_do_without_goes_on(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    """It reads registrations where all agents publish theirs, and says once what is refused."""
    (grant,) = grants({"agent": "User:before"}, Names(cluster=CLUSTER))
    rules = tuple(r for r in grant.rules if r.name != topics.TARGET.name)
    assert rules != grant.rules
    missing = Difference(principal="User:before", missing=rules, beyond=())
    AclAdmin(kafka.super_user).add([missing])
    with ProcessGroup(tmp_path) as group:
        agent = start(group, "agent", kafka.config("before"))

        def said() -> str:
            return agent.log.read_text(encoding="utf-8")

        wait(lambda: '"registrations.source"' in said(), "no other source", agent)
        wait(lambda: said().count('"topics.read"') >= 1, "nothing was read", agent)
        assert said().count("Read of topic target.v1") == 1
        assert "topic.missing" not in said()


def test_apply_again_changes_nothing_and_names_what_is_beyond(kafka: SecureKafka) -> None:
    """It says what it added, and what a principal has that the plan does not give."""
    arguments = ("acl", "apply", "--for", "bridge=User:b", "--for", "states=User:b")
    code, said = command(kafka, *arguments)
    assert code == 0
    assert "+ User:b: Read of group bridge-secure-*" in said
    assert "+ User:b: Read of topic fault.event.v1, incident.note.v1, silence.v1" in said
    assert "10 ACLs added" in said
    assert command(kafka, *arguments)[1].startswith("all principals of the plan have their ACLs")
    code, said = command(kafka, "acl", "apply", "--for", "bridge=User:b", "--json")
    found = json.loads(said)
    assert (code, found["added"]) == (0, 0)
    assert found["differences"][0]["beyond"] == [
        "ALLOW WRITE on TOPIC component.state.v1 (LITERAL) from *"
    ]
    code, said = command(kafka, *arguments, user="stranger")
    assert code == 3
    assert "refuses User:stranger: Alter of the cluster" in said


def test_refused_is_not_absent(kafka: SecureKafka) -> None:
    """`topics plan` offers to create nothing, and `doctor` does not advise to start a broker."""
    code, said = command(kafka, "topics", "plan", user="stranger")
    assert code == 3
    assert "+ " not in said
    assert "refuses User:stranger: Describe of topics agent.heartbeat.v1, " in said
    assert "`skeletonhunter acl apply --for operator=User:stranger`" in said
    code, said = command(kafka, "doctor", "--json", user="stranger")
    (check,) = json.loads(said)["checks"]
    assert (code, check["name"], check["status"]) == (1, "access", "fail")
    assert "acl apply --for reader=User:stranger" in check["found"]


def test_what_a_command_may_not_write_is_named_with_its_role(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    """Of one that does what all roles do, all are granted."""
    task = tmp_path / "task.toml"
    task.write_text(TASK, encoding="utf-8")
    for arguments, said in (
        (("silence", "add", "component=x", "--reason", "y"), "--for responder=User:stranger"),
        (("task", "submit", str(task)), "--for scheduler=User:stranger"),
        (("lab", "up"), "--principal User:stranger"),
    ):
        code, text = command(kafka, *arguments, user="stranger")
        assert code == 3
        assert f"`skeletonhunter acl apply {said}`" in text, text


def test_readers_and_operators_get_along_with_their_plan(kafka: SecureKafka) -> None:
    """`doctor` and `tail` run as a reader, `topics plan` and `apply` as an operator."""
    code, said = command(kafka, "doctor", "--listen-s", "0", "--json", user="skeletonhunter-reader")
    assert code in {0, 1}, said
    checks = {check["name"]: check for check in json.loads(said)["checks"]}
    assert checks["topics"]["found"] == "all there, as the contract says"
    reader = "skeletonhunter-reader"
    code, said = command(
        kafka, "tail", "task.v1", "--from", "beginning", "--no-follow", user=reader
    )
    assert code == 0, said
    code, said = command(kafka, "topics", "apply", user="skeletonhunter-operator")
    assert (code, said.strip()) == (0, "all topics are as the contract wants them")


@pytest.mark.parametrize("user", ["skeletonhunter-web", "stranger"])
def test_the_page_reads_with_its_plan_and_says_what_is_refused(
    kafka: SecureKafka, tmp_path: Path, user: str
) -> None:
    """Its principal reads all topics; without, the page names what is refused, not missing."""
    with ProcessGroup(tmp_path) as group:
        argv = [sys.executable, "-m", "ops.cli.start", "web", "--listen", "127.0.0.1:0"]
        page = group.start("web", [*argv, "--allow-actions", "--config", str(kafka.config(user))])
        wait(lambda: "http://" in page.log_tail(), "the page's address", page)
        url = page.log_tail().split("  (")[0].strip()

        def ready() -> tuple[int, str]:
            try:
                with urlopen(f"{url}readyz", timeout=10) as response:  # noqa: S310
                    return response.status, response.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        expected = (503, "acl apply --for web=User:stranger") if user == "stranger" else (200, "")
        wait(lambda: (said := ready())[0] == expected[0] and expected[1] in said[1], "ready", page)
        with urlopen(f"{url}api/stream/now", timeout=10) as response:  # noqa: S310
            while b"event: trouble" not in response.readline():
                pass
            trouble = json.loads(response.readline().decode().removeprefix("data: "))
        refused = silence(url) if user != "stranger" else {}
    if user == "stranger":
        assert "acl apply --for web=User:stranger" in trouble["what"]
    else:
        assert "what" not in trouble
        assert "refuses User:skeletonhunter-web: Write of topic silence.v1. " in refused["what"]
        assert (
            "`skeletonhunter acl apply --for responder=User:skeletonhunter-web`" in refused["what"]
        )


def silence(url: str) -> dict[str, str]:
    """Silence every fault as the page does, and return what is wrong with that."""
    entry = {"everything": True, "duration_s": 60, "reason": "drill", "author": "ann"}
    headers = {"origin": url.rstrip("/"), ACTION_HEADER: "1", "content-type": "application/json"}
    request = Request(f"{url}api/actions/silence", json.dumps(entry).encode(), headers)  # noqa: S310
    with pytest.raises(HTTPError) as refused, urlopen(request, timeout=20):  # noqa: S310
        pass
    with refused.value as answer:
        assert answer.code == 503
        found: dict[str, str] = json.load(answer)
    return found


NO_CERTIFICATE = dict.fromkeys(
    ("ssl__certificate__location", "ssl__key__location", "ssl__key__password__file"), ""
)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_table_logs_in(kafka: SecureKafka, mechanism: str) -> None:
    """TLS trust, user, password and mechanism of the table reach the client."""
    settings = kafka.settings(FIRST_USER, sasl__mechanism=mechanism)
    assert answers(settings.bootstrap, dict(settings.options))


@pytest.mark.parametrize(
    ("login", "changes", "expected"),
    [
        (SCRAM, {"sasl__password": "wrong"}, "invalid credentials"),
        (SCRAM, {"ssl__ca__location": "/etc/ssl/certs/ca-certificates.crt"}, "verify failed"),
        (SCRAM, {"security__protocol": "SASL_PLAINTEXT"}, "does not speak security.protocol=SASL_"),
        (CERTIFICATE, NO_CERTIFICATE, "certificate required"),
    ],
    ids=["wrong password", "unknown authority", "no TLS", "no certificate"],
)
def test_why_there_is_no_connection_is_said(
    kafka: SecureKafka, tmp_path: Path, login: str, changes: dict[str, str], expected: str
) -> None:
    """The reason of TLS or SASL reaches the user, of a process and of a command."""
    config = kafka.config("stranger", login, **changes)
    with ProcessGroup(tmp_path) as group:
        child = start(group, "localizer", config)
        code, said = run("topics", "plan", "--config", str(config))
        assert code == 3
        assert expected in said
        assert child.process.wait(WAIT_S) == 3
        assert expected in child.log.read_text(encoding="utf-8")
