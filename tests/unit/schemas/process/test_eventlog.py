"""Logs: what is for developers is ours alone."""

import io
import logging
from collections.abc import Iterator

import pytest

from schemas.process.eventlog import OWN, EventLog, setup_logging


@pytest.fixture
def _as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger(OWN)
    before = root.handlers[:], root.level, own.level
    yield
    root.handlers[:], root.level, own.level = before[0], before[1], before[2]


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("DEBUG", ["our.debug", "our.info", "their info"]),
        ("INFO", ["our.info", "their info"]),
        ("ERROR", []),
    ],
)
def test_debug_is_for_our_own_facts(level: str, shown: list[str]) -> None:
    """A compiler writes megabytes there."""
    stream = io.StringIO()
    setup_logging(as_json=False, level=level, stream=stream)
    ours, theirs = EventLog("test"), logging.getLogger("numba.core")
    ours.debug("our.debug")
    theirs.debug("their debug")
    ours.info("our.info")
    theirs.info("their info")
    said = stream.getvalue()
    every = ["our.debug", "their debug", "our.info", "their info"]
    assert [text for text in every if text in said] == shown
