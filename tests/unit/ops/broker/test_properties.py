"""The broker's settings, ports and announcement."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ops.broker import announcement
from ops.broker.announcement import Announcement
from ops.broker.ports import FIRST, LAST, ClaimedPorts, is_free
from ops.broker.properties import Listeners, Login, as_text, server_properties
from schemas.kafka.connection import discovered_bootstrap

WORD = "not-to-be-shown"
PLAIN = Listeners(plain=20001, controller=20002)


def test_listens_on_loopback_only() -> None:
    """No listener, and no address told to clients, is another than 127.0.0.1."""
    settings = server_properties(PLAIN, Path("/data"))
    for key in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        for part in settings[key].split(","):
            assert "127.0.0.1:2000" in part


def test_session_timeouts_are_those_of_a_real_cluster() -> None:
    """A client that asks for too short a session must fail here as it does elsewhere."""
    assert "group.min.session.timeout.ms" not in server_properties(PLAIN, Path("/data"))


def test_own_settings_win() -> None:
    """What a test asks for replaces what we chose."""
    extra = {"num.io.threads": "1", "log.retention.ms": "5"}
    settings = server_properties(PLAIN, Path("/data"), extra=extra)
    assert settings["num.io.threads"] == "1"
    assert settings["log.retention.ms"] == "5"


def test_logins_add_listeners() -> None:
    """There is a second listener for passwords, and a third where certificates are looked for."""
    login = Login(user="u", password=WORD, server_pem=Path("/key.pem"))
    listeners = Listeners(plain=20001, controller=20002, login=20003)
    one = server_properties(listeners, Path("/data"), login=login)
    assert one["listeners"].endswith("LOGIN://127.0.0.1:20003,CONTROLLER://127.0.0.1:20002")
    assert one["listener.security.protocol.map"].endswith("LOGIN:SASL_SSL")
    assert one["listener.name.login.ssl.keystore.location"] == "/key.pem"
    assert WORD in as_text(one)
    assert WORD not in repr(login)
    login = replace(login, client_ca=Path("/ca.pem"))
    listeners = replace(listeners, certificate=20004)
    both = server_properties(listeners, Path("/data"), login=login)
    assert "CERTIFICATE://127.0.0.1:20004" in both["advertised.listeners"]
    assert both["listener.security.protocol.map"].endswith("LOGIN:SASL_SSL,CERTIFICATE:SSL")
    assert both["listener.name.certificate.ssl.client.auth"] == "required"
    assert both["listener.name.certificate.ssl.truststore.location"] == "/ca.pem"
    assert both["listener.name.certificate.ssl.keystore.location"] == "/key.pem"


def test_properties_file_keeps_backslashes() -> None:
    """A value comes out of Java's reader as it went in."""
    assert as_text({"a": r"C:\x", "b": "1"}) == "a=C:\\\\x\nb=1\n"


def test_claimed_port_is_free_and_outside_the_ephemeral_range() -> None:
    """A port is chosen where no outgoing connection can take it during a restart."""
    ports = ClaimedPorts()
    port = ports.claim()
    assert FIRST <= port <= LAST < 32768
    assert is_free(port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen(1)
        assert not is_free(port)
    ports.release()


def test_a_port_is_claimed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may be down or not started yet; after the release the port is to be had again."""
    first, second = ClaimedPorts(), ClaimedPorts()
    port = first.claim()
    monkeypatch.setattr("ops.broker.ports.FIRST", port)
    monkeypatch.setattr("ops.broker.ports.LAST", port)
    assert is_free(port)
    with pytest.raises(OSError, match="no free TCP port"):
        second.claim()
    first.release()
    assert second.claim() == port
    second.release()


def test_the_port_of_the_operator_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is free until Kafka binds it, and a listener beside it would get it otherwise."""
    ports = ClaimedPorts()
    given = ports.claim()
    ports.release()
    monkeypatch.setattr("ops.broker.ports.FIRST", given)
    monkeypatch.setattr("ops.broker.ports.LAST", given)
    with pytest.raises(OSError, match="no free TCP port"):
        ports.claim(given)


def test_announcement_is_found_and_withdrawn(state_dir: Path) -> None:
    """Other commands find the broker; afterwards no file is left, not even a scratch one."""
    ours = Announcement(bootstrap="127.0.0.1:20001", pid=os.getpid(), data_dir="/data")
    path = announcement.write(ours)
    assert path.parent == state_dir
    assert discovered_bootstrap() == "127.0.0.1:20001"
    assert announcement.read() == ours
    assert ours.owner_alive
    announcement.withdraw(ours)
    assert discovered_bootstrap() is None
    assert list(state_dir.iterdir()) == []


def test_only_ones_own_announcement_is_withdrawn(state_dir: Path) -> None:
    """A broker that started later keeps its announcement when an earlier one ends."""
    first = Announcement(bootstrap="127.0.0.1:20001", pid=os.getpid(), data_dir="/a")
    second = Announcement(bootstrap="127.0.0.1:20009", pid=os.getpid(), data_dir="/b")
    announcement.write(first)
    announcement.write(second)
    announcement.withdraw(first)
    assert announcement.read() == second
    assert state_dir.is_dir()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", json.dumps({"bootstrap": "x"})])
def test_damaged_announcement_is_none(state_dir: Path, text: str) -> None:
    """A file that makes no sense is no broker, and no traceback."""
    state_dir.mkdir()
    announcement.announcement_path().write_text(text, encoding="utf-8")
    assert announcement.read() is None
