"""What people may write about faults: what is wrong is named; what passes every reader takes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bridge.operator_records import (
    MAX_TEXT,
    MAX_US,
    Authorship,
    InvalidEntryError,
    expired,
    new_note,
    new_silence,
)
from schemas import topics
from schemas.codec import Codec
from schemas.enums import NoteAction
from schemas.records import Matcher, Silence
from tests.unit.ops.bridge.made import BEGIN, CLUSTER, S

ANN = Authorship(cluster=CLUSTER, author="ann", at_us=BEGIN)


def patterns(*texts: str) -> list[Matcher]:
    """Return matchers of LABEL=PATTERN."""
    return [Matcher(label=t.partition("=")[0], pattern=t.partition("=")[2]) for t in texts]


def silence(by: Authorship = ANN, **changes: Any) -> Silence:
    """Return a silence of an hour, with changes."""
    given: dict[str, Any] = {
        "matchers": patterns("component=link:*"), "everything": False, "from_us": BEGIN,
        "until_us": BEGIN + 3_600 * S, "reason": "new optics", **changes,
    }  # fmt: skip
    return new_silence(by, "s-1", **given)


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"matchers": []}, "matchers", "must say what is silenced"),
        ({"everything": True}, "matchers", "not both"),
        ({"matchers": patterns("colour=red")}, "matchers", "labels are component, component_kind"),
        ({"matchers": patterns("task=")}, "matchers", "must be LABEL=PATTERN"),
        ({"matchers": patterns("component=*", "task=**")}, "matchers", "say that all are meant"),
        ({"matchers": patterns("component=?*")}, "matchers", "say that all are meant"),
        ({"matchers": patterns("severity=????*", "task=*")}, "matchers", "say that all are meant"),
        ({"matchers": patterns(*["task=a"] * 17)}, "matchers", "matchers=17 items: from 0 to 16"),
        ({"matchers": patterns("task=" + "a" * 1_025)}, "matchers.pattern", "1025 characters"),
        ({"matchers": patterns("task=\ud800")}, "text", "half a character"),
        ({"reason": " "}, "reason", "is empty"),
        ({"reason": "a" * (MAX_TEXT + 1)}, "reason", "1,001 characters, at most 1,000"),
        ({"until_us": BEGIN}, "until_at", "after the begin and after now"),
        ({"from_us": BEGIN + 7_200 * S}, "until_at", "after the begin and after now"),
        ({"from_us": BEGIN - 7_200 * S, "until_us": BEGIN - 1}, "until_at", "after now"),
        ({"until_us": BEGIN + MAX_US + 1}, "until_at", "at most 90 days"),
        ({"from_us": 10**18, "until_us": 10**18 + 1}, "from_at", "is out of bounds"),
        ({"by": Authorship(cluster="c", author=" ", at_us=BEGIN)}, "author", "say who you are"),
        ({"by": Authorship(cluster="c", author="a" * 1_025, at_us=BEGIN)}, "author", "1025"),
    ],
)
def test_a_silence_that_is_none_is_refused(changes: dict[str, Any], field: str, said: str) -> None:
    """The field is named, and why."""
    with pytest.raises(InvalidEntryError, match=said) as refused:
        silence(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("action", "texts", "field", "said"),
    [
        (NoteAction.COMMENT, {"text": " "}, "text", "is empty"),
        (NoteAction.ACKNOWLEDGE, {"text": "a" * 1_001}, "text", "1,001 characters"),
        (NoteAction.CLOSE, {}, "cause", "is empty"),
        (NoteAction.CLOSE, {"cause": "a" * 1_001}, "cause", "1,001 characters"),
        (NoteAction.ACKNOWLEDGE, {"cause": "optics"}, "cause", "who closes a fault"),
    ],
)
def test_a_note_that_says_nothing_is_refused(
    action: NoteAction, texts: dict[str, str], field: str, said: str
) -> None:
    """Who closes a fault says what it was; a comment has a text."""
    with pytest.raises(InvalidEntryError, match=said) as refused:
        new_note(ANN, "n-1", "f-1", action, **texts)
    assert refused.value.field == field


def test_every_fault_is_silenced_by_a_word_of_its_own() -> None:
    """Never by a pattern that happens to fit all."""
    assert silence(matchers=[], everything=True).matchers == ()
    assert silence(matchers=patterns("task=?*")).matchers == tuple(patterns("task=?*"))


def test_a_silence_ends_once_and_says_by_whom() -> None:
    """One that is planned ends before it began; one that is over stays as it is."""
    bob = Authorship(cluster=CLUSTER, author="bob", at_us=BEGIN + 60 * S)
    ended = expired(silence(), bob)
    assert ended is not None
    assert (ended.from_at, ended.until_at) == (BEGIN, BEGIN + 60 * S)
    assert (ended.author, ended.ended_by) == ("ann", "bob")
    assert expired(ended, bob) is None
    planned = expired(silence(from_us=BEGIN + 600 * S), bob)
    assert planned is not None
    assert planned.from_at == planned.until_at == BEGIN + 60 * S
    with pytest.raises(InvalidEntryError, match="say who you are"):
        expired(silence(), Authorship(cluster=CLUSTER, author="", at_us=BEGIN))


@given(author=st.text(max_size=1_100), text=st.text(max_size=1_100), cause=st.text(max_size=1_100))
def test_what_passes_is_read_by_every_reader(author: str, text: str, cause: str) -> None:
    """Nothing that people can type becomes a dead letter."""
    by = Authorship(cluster=CLUSTER, author=author, at_us=BEGIN)
    try:
        note = new_note(by, "n-1", "f-1", NoteAction.CLOSE, text=text, cause=cause)
        quiet = silence(by, reason=text, matchers=[Matcher(label="component", pattern=cause)])
    except InvalidEntryError:
        return
    codec = Codec()
    for topic, record in ((topics.INCIDENT_NOTE, note), (topics.SILENCE, quiet)):
        assert codec.decode(topic, codec.encode(topic, record), arrival_ns=BEGIN * 1_000) == record
