"""Waits until a broker answers."""

import socket
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

POLL_S: Final = 0.05
REQUEST_TIMEOUT_S: Final = 2.0


def wait_for_metadata(bootstrap: str, check: Callable[[], None]) -> None:
    """Return when the broker answers a metadata request and counts itself among the living.

    `check` is called between two attempts and ends the wait by raising.
    """
    host, _, port = bootstrap.rpartition(":")
    while not _accepts(host, int(port)):
        check()
        time.sleep(POLL_S)
    client = _client({"bootstrap.servers": bootstrap})
    while not _has_brokers(client, REQUEST_TIMEOUT_S):
        check()
        time.sleep(POLL_S)


def answers(bootstrap: str, options: dict[str, Any] | None = None, timeout_s: float = 5.0) -> bool:
    """Return whether a broker answers a metadata request within the time."""
    return _has_brokers(_client({**(options or {}), "bootstrap.servers": bootstrap}), timeout_s)


def _client(options: dict[str, Any]) -> AdminClient:
    # Refused connections are what we wait out; librdkafka would print each.
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}
    return AdminClient({**options, **quiet})


def _has_brokers(client: AdminClient, timeout_s: float) -> bool:
    """Tell whether a metadata request is answered, and by a broker that may serve.

    One that is still fenced is not in its own list, and creates no topics.
    """
    try:
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
