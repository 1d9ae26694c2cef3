"""One `[kafka]` table, checked once, for all clients; secrets stay secret."""

import dataclasses
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas.kafka.connection import (
    BOOTSTRAP_ENV,
    BROKER_FILE,
    STATE_ENV,
    KafkaSettings,
    load_settings,
    settings_from_table,
)
from schemas.process.eventlog import EventLog, setup_logging
from schemas.process.settings import CONFIG_ENV, ConfigError, read_table

HIDDEN = "not-to-be-shown"
SASL: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "worker",
    "sasl.password": HIDDEN,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a config file with a `[kafka]` table."""
    path = tmp_path / "skeletonhunter.toml"
    path.write_text(
        """
        [kafka]
        "bootstrap.servers" = "from-file:9092"
        "topic.prefix" = "file."
        cluster = "lab"
        "socket.keepalive.enable" = true
        "linger.ms" = 5
        [agent]
        id = "agent-h0"
        """,
        encoding="utf-8",
    )
    return path


def test_arguments_before_environment_before_file_before_running_broker(
    config: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source yields only to those before it."""
    state_dir.mkdir()
    (state_dir / BROKER_FILE).write_text(json.dumps({"bootstrap": "running:1"}))
    assert load_settings(None).bootstrap == "running:1"
    assert load_settings(config).bootstrap == "from-file:9092"
    monkeypatch.setenv(BOOTSTRAP_ENV, "from-environment:1")
    assert load_settings(config).bootstrap == "from-environment:1"
    assert load_settings(config, bootstrap="given:1").bootstrap == "given:1"


def test_no_broker_is_a_sentence(state_dir: Path) -> None:
    """Where none is known, the message says three ways out."""
    del state_dir
    with pytest.raises(ConfigError, match=r"broker run.*--bootstrap.*KAFKA_BOOTSTRAP"):
        load_settings(None)


def test_own_keys_are_kept_from_the_client(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours are read, librdkafka's passed on as text, and the file may come by environment."""
    monkeypatch.setenv(CONFIG_ENV, str(config))
    settings = load_settings()
    assert (settings.cluster, settings.topic("x")) == ("lab", "file.x")
    assert load_settings(prefix="").topic("x") == "x"
    assert settings.librdkafka() == {
        "bootstrap.servers": "from-file:9092",
        "socket.keepalive.enable": "true",
        "linger.ms": "5",
    }
    assert read_table(None, "agent") == {"id": "agent-h0"}
    assert read_table(None, "worker") == {}


TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "lower case": {"security.protocol": "plaintext"},
    "sasl": SASL,
    "the other name of the mechanism": {
        **{k: v for k, v in SASL.items() if k != "sasl.mechanism"},
        "sasl.mechanisms": "PLAIN",
    },
}


@pytest.mark.parametrize("name", TABLES)
def test_the_table_serves_librdkafka_as_it_is(name: str) -> None:
    """The client takes every key, and login and password reach it."""
    table = TABLES[name]
    passed = settings_from_table("127.0.0.1:1", table).librdkafka()
    Producer({**passed, "log_level": 0})  # raises on a key or value it lacks
    assert {k: v for k, v in passed.items() if k.startswith(("sasl.u", "sasl.p"))} == {
        k: v for k, v in table.items() if k.startswith(("sasl.u", "sasl.p"))
    }


WRONG_TABLES: dict[str, tuple[dict[str, Any], str]] = {
    "protocol": ({"security.protocol": "SSH"}, "security.protocol='SSH': one of PLAINTEXT"),
    "no mechanism": (
        {"security.protocol": "SASL_SSL", "sasl.password": HIDDEN},
        "needs one sasl.mechanism",
    ),
    "two mechanisms": ({**SASL, "sasl.mechanisms": "PLAIN"}, "needs one sasl.mechanism"),
    "list": ({"sasl.password": [HIDDEN]}, "sasl.password must be a string"),
    "prefix": ({"topic.prefix": "a b"}, "topic.prefix='a b'"),
    "long prefix": ({"topic.prefix": "a" * 65}, "at most 64"),
    "certificate": ({"ssl.ca.location": "/nosuch/ca"}, "location='/nosuch/ca': No such file"),
    "secret file": ({"sasl.password.file": "/nosuch/file"}, "No such file"),
    "login in the url": (
        {"schema.registry.url": f"http://user:{HIDDEN}@registry:8081"},
        "schema.registry.url holds a login",
    ),
}


@pytest.mark.parametrize("name", WRONG_TABLES)
def test_wrong_table_is_refused_without_its_secrets(name: str) -> None:
    """The message names the setting and what it takes, never a password."""
    table, message = WRONG_TABLES[name]
    with pytest.raises(ConfigError) as caught:
        settings_from_table("127.0.0.1:1", table)
    assert message in str(caught.value)
    assert HIDDEN not in str(caught.value)


def test_all_faults_are_named_at_once() -> None:
    """Whoever mends a table mends it once."""
    with pytest.raises(ConfigError) as caught:
        settings_from_table("x:1", {"security.protocol": "SSH", "topic.prefix": "a b"})
    assert "security.protocol" in str(caught.value)
    assert "topic.prefix" in str(caught.value)


def test_password_may_lie_in_a_file(tmp_path: Path) -> None:
    """The file's content, without its line end, reaches the client; the path does not."""
    path = tmp_path / "secret"
    path.write_text(HIDDEN + "\n")
    table = {**SASL, "sasl.password.file": str(path), "schema.registry.password.file": str(path)}
    del table["sasl.password"]
    settings = settings_from_table("x:1", table)
    assert settings.librdkafka()["sasl.password"] == HIDDEN
    assert settings.registry_password == HIDDEN
    assert not any(key.endswith(".file") for key in settings.librdkafka())


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    """Send logs to a text, then put logging back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_never_reach_text_or_log(log_stream: io.StringIO, as_json: bool) -> None:
    """Neither repr, nor a log of the settings or of a field by a telling name, shows one."""
    table = {
        **SASL,
        "ssl.key.password": HIDDEN,
        "schema.registry.url": "http://registry:8081",
        "schema.registry.user": "me",
        "schema.registry.password": HIDDEN,
    }
    settings = settings_from_table("x:1", table)
    assert settings.registry_password == HIDDEN
    assert HIDDEN not in repr(settings)
    assert HIDDEN not in str(dataclasses.replace(settings, cluster="other"))
    setup_logging(as_json=as_json, stream=log_stream)
    EventLog("test").info(
        "settings.read", settings=settings, sasl_password=HIDDEN, **{"ssl.key.pem": HIDDEN}
    )
    assert "settings.read" in log_stream.getvalue()
    assert HIDDEN not in log_stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [("kafka = 3", "must be a table"), ("[kafka", "config file"), (None, "No such file")],
)
def test_unusable_config_file_is_a_sentence(
    tmp_path: Path, content: str | None, message: str
) -> None:
    """A file that is missing, broken, or holds something else is named."""
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_table(path, "kafka")


def test_settings_compare_by_value() -> None:
    """Two readings of one table are equal."""
    assert settings_from_table("x:1", SASL) == settings_from_table("x:1", SASL)
    assert KafkaSettings(bootstrap="x:1") != settings_from_table("x:1", SASL)


PROCESSES = {
    "streams": ["--window-s", "x"],
    "skeleton_job": ["--window-s", "x"],
    "localizer": ["--min-flows", "x"],
    "probers": ["--check", "--rnic", "rail=x"],
}


def started_without_broker(process: str, *options: str, state: Path) -> tuple[int, str]:
    """Return exit code and error output of a process that finds no broker."""
    env = {k: v for k, v in os.environ.items() if k != "KAFKA_BOOTSTRAP"}
    done = subprocess.run(
        [sys.executable, "-m", process, *options],
        env={**env, STATE_ENV: str(state)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("process", PROCESSES)
def test_without_any_broker_every_process_says_so_and_ends_with_3(
    process: str, tmp_path: Path
) -> None:
    """A sentence with what to do, no traceback, the exit code for the environment."""
    options = ["--rnic", "rail=0,address=127.0.0.1"] if process == "probers" else []
    code, said = started_without_broker(process, *options, state=tmp_path)
    assert code == 3, said
    assert "--bootstrap" in said


@pytest.mark.parametrize("process", PROCESSES)
def test_wrong_settings_are_named_where_there_is_no_broker(process: str, tmp_path: Path) -> None:
    """They are the operator's to mend on any machine, and end a process with 2."""
    code, said = started_without_broker(process, *PROCESSES[process], state=tmp_path)
    assert code == 2, said
    assert "--bootstrap" not in said
