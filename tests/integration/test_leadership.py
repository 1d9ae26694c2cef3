"""Who of several processes of a role leads next, on a real broker."""

import os
import time

import pytest

from schemas import topics
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.leadership import Leadership
from schemas.process.eventlog import EventLog

pytestmark = pytest.mark.broker
WAIT_S = 60.0


def test_the_standby_that_began_first_leads_next(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that began again is not yet ready; its process id may come first in any order."""
    members = []
    for pid in (300, 200, 100):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        members.append(Leadership(kafka, "role", topics.FAULT_EVENT, EventLog("role")))
        wait_until_settled(members)
        assert [m.leads for m in members] == [True] + [False] * (len(members) - 1)
    first, *standbys = members
    first.close()
    deadline = time.monotonic() + WAIT_S
    while not any(m.poll() for m in standbys):
        assert time.monotonic() < deadline
    assert [m.leads for m in standbys] == [True, False]
    for member in standbys:
        member.close()


def wait_until_settled(members: list[Leadership]) -> None:
    """Wait until the group has said who leads, and stays so for two heartbeats."""
    deadline = time.monotonic() + WAIT_S
    settled_since = time.monotonic()
    while time.monotonic() < settled_since + 2:
        assert time.monotonic() < deadline
        for member in members:
            member.poll()
        if not all(m.settled for m in members):
            settled_since = time.monotonic()
        time.sleep(0.02)
