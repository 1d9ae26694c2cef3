"""RAS is asked over a real connection, and nothing that is at its other end holds a look up."""

import os
import time
from pathlib import Path

import pytest

from probers.collectives.nccl_ras import RasStatus, parse_status
from probers.collector import ras
from probers.collector.ras import RasAnswer, RasAsker, every_ns
from schemas.units import SECOND_NS
from tests.nccl_answers import ras_answer, ras_group, ras_rank
from tests.nccl_ras_server import (
    Behaviour,
    answering,
    closing,
    dripping,
    endless,
    endless_status,
    garbage,
    ras_server,
    silent,
)

NAMESPACE = Path("/proc/self/ns/net")
OWN = os.stat(NAMESPACE).st_ino
ANSWER = ras_answer(ras_group([ras_rank(0, AllReduce=5)]))


def look(asker: RasAsker, address: tuple[str, int], now_s: int = 0) -> RasAnswer | None:
    """Look once."""
    return asker.look((OWN, address), NAMESPACE, every_ns=60 * SECOND_NS, now_ns=now_s * SECOND_NS)


def answer(behave: Behaviour) -> RasAnswer:
    """Return what comes of a question."""
    asker = RasAsker(OWN)
    with ras_server(behave) as address:
        assert look(asker, address) is None
        asker.wait()
        found = look(asker, address)
    assert found is not None
    return found


def test_an_answer_comes_at_a_later_look_and_once() -> None:
    """And the next question when it is time."""
    asker = RasAsker(OWN)
    with ras_server(answering(ANSWER)) as address:
        assert look(asker, address) is None
        asker.wait()
        found = look(asker, address, 2)
        assert found is not None
        assert (found.why, found.status is not None) == (None, True)
        assert look(asker, address, 4) is None
        asker.wait()
        assert look(asker, address, 59) is None
        assert look(asker, address, 61) is None
        asker.wait()
        assert look(asker, address, 63) is not None


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (garbage, "it is not RAS"),
        (endless, "it is not RAS"),
        (closing, "it closed the connection|reset by peer"),
        (answering(ANSWER, formats=False), "before NCCL 2.28.7|NCCL before 2.28.7"),
        (answering(ANSWER[:-9]), "cut short"),
        (answering(b""), "cut short"),
        (silent, "no answer within"),
        (dripping, "no answer within"),
    ],
)
def test_what_is_not_ras_is_told(
    behave: Behaviour, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the time that a question has, however little comes at a time."""
    monkeypatch.setattr(ras, "ANSWER_S", 1.0)
    begun = time.monotonic()
    found = answer(behave)
    assert found.status is None
    assert found.why is not None
    assert any(part in found.why for part in why.split("|"))
    assert time.monotonic() - begun < 30


def test_an_answer_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its size, before the time is over."""
    monkeypatch.setattr(ras, "MAX_ANSWER_BYTES", 10**6)
    assert "longer than 1000000 bytes" in (answer(endless_status).why or "")


def test_answers_are_opened_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take many times its size; and none is kept when it was taken."""
    at_once, most = 0, 0

    def opened(content: bytes) -> RasStatus:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        time.sleep(0.1)
        at_once -= 1
        return parse_status(content)

    monkeypatch.setattr(ras, "parse_status", opened)
    monkeypatch.setattr(ras, "inside", lambda _path, work: work())
    asker = RasAsker(OWN)
    with ras_server(answering(ANSWER)) as address:
        places = [(OWN + number, address) for number in range(ras.MAX_ASKED)]
        for _ in range(2):
            found = [
                asker.look(place, NAMESPACE, every_ns=60 * SECOND_NS, now_ns=0) for place in places
            ]
            asker.wait()
    assert most == 1
    assert all(answer is not None and answer.status is not None for answer in found)
    assert not any(question.status for question in asker._questions.values())


def test_where_nobody_listens_that_is_said() -> None:
    """A job without NCCL has no RAS."""
    with ras_server(closing) as address:
        pass
    asker = RasAsker(OWN)
    look(asker, address)
    asker.wait()
    found = look(asker, address)
    assert found is not None
    assert found.why == "Connection refused"


def test_one_that_hangs_holds_nothing_up_and_few_are_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look returns at once; questions beyond the bound wait for the others."""
    monkeypatch.setattr(ras, "ANSWER_S", 2.0)
    asker = RasAsker(OWN)
    with ras_server(silent) as address:
        places = [(OWN + number, address) for number in range(ras.MAX_ASKED + 2)]
        monkeypatch.setattr(ras, "inside", lambda _path, work: work())
        begun = time.process_time()
        for place in places:
            assert asker.look(place, NAMESPACE, every_ns=SECOND_NS, now_ns=0) is None
        assert time.process_time() - begun < 0.5
        assert len(asker._questions) == ras.MAX_ASKED
        # What runs is not forgotten, or it would be asked again beside itself.
        asker.keep(())
        assert len(asker._questions) == ras.MAX_ASKED
        asker.wait()
        asker.keep(())
        assert not asker._questions


def test_a_large_job_is_asked_less_often() -> None:
    """About once a second by all its hosts together."""
    assert [every_ns(60, size) // SECOND_NS for size in (None, 8, 600, 10_240)] == [
        60, 60, 60, 1_024,
    ]  # fmt: skip
