"""Which probes are under way, and what an answer is to them."""

from probers.clock import Instant
from probers.transports.base import Probe
from probers.transports.exchange import AnswerKind, Outstanding


def a_probe(token: int, timeout_ns: int = 100) -> Probe:
    """Return a probe."""
    return Probe(token=token, address="10.0.0.1", port=1, flow=0, entropy=0, timeout_ns=timeout_ns)


def test_an_answer_is_awaited_then_duplicate_then_foreign_when_forgotten() -> None:
    """The first answer finds its probe; the memory of finished ones is bounded."""
    table = Outstanding(remembered=2)
    for nonce in (1, 2, 3):
        entry = table.record_posted(nonce, a_probe(nonce), Instant(0, 0))
        assert table.match_answer(nonce) == (AnswerKind.AWAITED, entry)
        table.finish(entry, answered=True)
        assert table.match_answer(nonce) == (AnswerKind.DUPLICATE, None)
    assert table.match_answer(1) == (AnswerKind.FOREIGN, None)
    assert table.match_answer(99) == (AnswerKind.FOREIGN, None)
    assert len(table) == 0


def test_an_expired_probes_answer_is_late() -> None:
    """What comes after the timeout is late, once and again."""
    table = Outstanding()
    table.record_posted(1, a_probe(1), Instant(0, 0))
    assert [e.nonce for e in table.expire(99)] == []
    assert [e.nonce for e in table.expire(100)] == [1]
    assert table.expire(10**9) == []
    assert table.match_answer(1) == (AnswerKind.LATE, None)


def test_probes_expire_by_their_own_deadlines() -> None:
    """A short timeout sent later may end first; answered ones do not expire."""
    table = Outstanding()
    table.record_posted(1, a_probe(1, 500), Instant(0, 0))
    table.record_posted(2, a_probe(2, 100), Instant(50, 0))
    answered = table.record_posted(3, a_probe(3, 100), Instant(60, 0))
    table.finish(answered, answered=True)
    assert [e.nonce for e in table.expire(1_000)] == [2, 1]
