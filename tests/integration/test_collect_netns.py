"""Sockets of ranks in network namespaces, and what a cut cable does to them."""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from probers.clock import SystemClock
from probers.collector.config import CollectConfig
from probers.collector.look import Looker
from schemas.process.eventlog import EventLog
from schemas.records import RankSocket, SocketBatch
from tests.integration.stand_in_ranks import rank

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="needs root and iproute2 for network namespaces",
    ),
]
SECOND = 10**9
# A namespace is entered, a rank is started, a connection made: on a busy machine seconds.
WAIT_S = 60


def ip(command: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *command.split()], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Give two namespaces, with 10.7.8.1 and 10.7.8.2, joined by a cable."""
    names = [f"sh{uuid.uuid4().hex[:6]}" for _ in range(2)]
    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"-n {names[0]} link add v0 type veth peer name v0 netns {names[1]}")
        for number, name in enumerate(names):
            ip(f"-n {name} addr add 10.7.8.{number + 1}/24 dev v0")
            ip(f"-n {name} link set v0 up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_a_cut_cable_shows_at_the_sockets(namespaces: list[str], tmp_path: Path) -> None:
    """Bytes of rank 0 are not acknowledged any more; the collector stays in its own namespace."""
    task = f"job-{uuid.uuid4().hex[:8]}"
    looker = Looker(CollectConfig(), "c", "h", EventLog("collect"))
    here = Path("/proc/self/ns/net").readlink()

    def sockets() -> dict[int, tuple[RankSocket, ...]]:
        records = [m.record for m in looker.look(SystemClock().now())]
        of_task = [r for r in records if isinstance(r, SocketBatch) and r.task_id == task]
        assert all(r.missing_reason is None for r in of_task)
        return {r.rank: r.sockets for r in of_task}

    def until(what: str, of_zero: str, least: int) -> RankSocket:
        deadline = time.monotonic() + WAIT_S
        while True:
            found = sockets().get(0, ())
            if found and (getattr(found[0], of_zero) or 0) >= least:
                return found[0]
            assert time.monotonic() < deadline, what
            time.sleep(0.2)

    with ExitStack() as stack:
        for number, name in enumerate(namespaces):
            stack.enter_context(rank(number, task, tmp_path, "10.7.8.2", 7_000, namespace=name))
        healthy = until("bytes that arrive", "acked_bytes", 1_000)
        assert (healthy.peer_rank, healthy.local_address) == (1, "10.7.8.1")
        assert (healthy.stalled_ns or 0) < SECOND
        ip(f"-n {namespaces[1]} link set v0 down")
        stuck = until("bytes without an acknowledgement", "stalled_ns", 2 * SECOND)
        assert (stuck.unacked_bytes or 0) + (stuck.queued_bytes or 0) > 0
        assert (stuck.backoff or 0) > 0
        assert Path("/proc/self/ns/net").readlink() == here
    looker.close()
