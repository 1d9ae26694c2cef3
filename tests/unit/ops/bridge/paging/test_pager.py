"""What is paged: once, until it is over, whenever somebody looks."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bridge.paging.labels import Owner
from ops.bridge.paging.page import Action, Notification, Page
from ops.bridge.paging.pager import Pager, PagerConfig
from schemas.enums import FaultLifecycle, NoteAction
from schemas.records import FaultEvent, IncidentNote, Silence
from tests.unit.ops.bridge.made import BEGIN, S, note, silence, transition

UPDATED, RESOLVED = FaultLifecycle.UPDATED, FaultLifecycle.RESOLVED


def run(
    *steps: tuple[int, Any],
    until_s: int = 1_000,
    config: PagerConfig = PagerConfig(),  # noqa: B008
) -> tuple[Pager, list[Notification]]:
    """Apply records at seconds after the begin; return the pager and what was told."""
    pager, told = Pager(config), list[Notification]()
    for at_s, record in steps:
        told += apply(pager, record, BEGIN + at_s * S)
    return pager, told + pager.advance(BEGIN + until_s * S)


def apply(pager: Pager, record: Any, at_us: int) -> list[Notification]:
    """Apply a record of any topic."""
    match record:
        case FaultEvent():
            return pager.apply_fault(record, at_us)
        case Silence():
            return pager.apply_silence(record.silence_id, record, at_us)
        case IncidentNote():
            return pager.apply_note(record, at_us)
    raise TypeError(record)


def actions(told: list[Notification]) -> list[tuple[str, str, int]]:
    """Return page, action and seconds of what people are told."""
    return [
        (n.page.page_id, n.action.value, (n.position.at_us - BEGIN) // S)
        for n in told
        if n.page is not None and n.action is not None
    ]


def test_a_fault_is_paged_once_and_resolved_after_the_hold_time() -> None:
    """Counts of paths are no news; a change of the verdict is."""
    _, told = run(
        (0, transition("a", 1)),
        (5, transition("a", 2, UPDATED, bad_paths=99)),
        (10, transition("a", 3, UPDATED, fault_kind="switch_down")),
        (20, transition("a", 4, RESOLVED, fault_kind="switch_down")),
    )
    assert actions(told) == [("a", "trigger", 0), ("a", "update", 10), ("a", "resolve", 80)]
    assert [n.transition.seq for n in told if n.transition is not None] == [1, 2, 3, 4]


def test_flapping_pages_once_and_says_how_often() -> None:
    """A fault that comes back within the hold time keeps its page."""
    steps = [(0, transition("a", 1))]
    for turn in range(1, 5):
        steps.append((turn * 40, transition("a", 2 * turn, RESOLVED, flaps=turn - 1)))
        steps.append((turn * 40 + 20, transition("a", 2 * turn + 1, UPDATED, flaps=turn)))
    steps.append((200, transition("a", 10, RESOLVED, flaps=4)))
    _, told = run(*steps)
    counts = Counter(action for _, action, _ in actions(told))
    assert counts == {"trigger": 1, "update": 4, "resolve": 1}
    last = [n.page for n in told if n.page is not None][-1]
    assert last.first.flaps == 4


def test_what_is_not_severe_enough_is_paged_when_it_becomes_so() -> None:
    """And labels change with it, so that it is routed anew; not if it becomes less severe."""
    config = PagerConfig(least_severity="warning")
    pager, told = run(
        (0, transition("a", 1, severity="info")),
        (5, transition("a", 2, UPDATED, severity="warning")),
        (6, transition("a", 3, UPDATED, severity="critical", fault_kind="host_down")),
        (7, transition("a", 4, UPDATED, severity="warning", fault_kind="agent_dead")),
        until_s=10, config=config,
    )  # fmt: skip
    assert [action for _, action, _ in actions(told)] == ["trigger", "update", "update"]
    (page,) = pager.firing()
    assert (page.labels["severity"], page.labels["kind"]) == ("critical", "host_down")


def test_a_storm_is_one_page_with_a_list() -> None:
    """The first few faults have pages of their own; the page of the others ends with the last."""
    config = PagerConfig(storm_faults=3)
    faults = [f"f{n:02}" for n in range(40)]
    opened = [
        (n // 4, transition(name, 1, tasks=(f"job{n % 3}",))) for n, name in enumerate(faults)
    ]
    pager, told = run(*opened, until_s=30, config=config)
    assert [p.page_id for p in pager.firing()] == ["f00", "f01", "f02", "storm-f03"]
    storm = pager.firing()[-1]
    assert [f.fault_id for f in storm.faults] == faults[3:]
    assert storm.labels["kind"] == "storm"
    assert storm.labels["component"] == "several"
    assert storm.labels["task"] == "several"
    assert Counter(action for _, action, _ in actions(told))["trigger"] == 4
    resolved = [(100 + n, transition(name, 2, RESOLVED)) for n, name in enumerate(faults)]
    pager, told = run(*opened, *resolved, config=config)
    assert pager.firing() == []
    assert [a for p, a, _ in actions(told) if p == "storm-f03"].count("resolve") == 1
    assert actions(told)[-1] == ("storm-f03", "resolve", 139 + 60)


def test_a_silence_hides_the_page_and_not_the_fault() -> None:
    """Transitions go on; a fault that is still open when it ends is paged then."""
    pager, told = run(
        (0, silence("s1", 0, 100, component="link:*", task="job1")),
        (10, transition("a", 1)),
        (20, transition("b", 1)),
        (30, transition("b", 2, RESOLVED)),
        until_s=99,
    )
    assert actions(told) == []
    assert [n.silenced for n in told if n.transition is not None] == [True, True, True]
    assert pager.silenced() == 1
    told = pager.advance(BEGIN + 200 * S)
    assert actions(told) == [("a", "trigger", 100)]


def test_a_silence_ends_a_page_and_its_own_end_brings_it_back() -> None:
    """Also one that somebody ends early, or that begins later."""
    _, told = run(
        (0, transition("a", 1)),
        (10, silence("s1", 20, 1_000, fault_id="a")),
        (50, silence("s1", 20, 50, fault_id="a")),
        until_s=60,
    )
    assert actions(told) == [("a", "trigger", 0), ("a", "resolve", 20), ("a", "trigger", 50)]
    ended = next(n.page for n in told if n.action is Action.RESOLVE)
    assert ended is not None
    assert ended.end_reason == "silenced"


@pytest.mark.parametrize(
    ("label", "pattern"),
    [
        ("component", "switch:*"), ("task", "job2"), ("severity", "info"), ("colour", "*"),
        ("task", "[a-z]ob1"),
    ],
)  # fmt: skip
def test_a_silence_of_something_else_hides_nothing(label: str, pattern: str) -> None:
    """A label that does not exist fits no fault, and a bracket is a bracket."""
    _, told = run((0, silence("s", 0, 100, **{label: pattern})), (5, transition("a", 1)))
    assert actions(told)[0] == ("a", "trigger", 5)


def test_closed_by_somebody_it_is_not_paged_until_it_comes_back() -> None:
    """Acknowledged it says by whom."""
    _, told = run(
        (0, transition("a", 1)),
        (5, note("a", NoteAction.ACKNOWLEDGE)),
        (6, note("a", NoteAction.ACKNOWLEDGE, "n2")),
        (10, note("a", NoteAction.CLOSE)),
        (15, transition("a", 2, UPDATED, severity="error")),
        (20, transition("a", 3, RESOLVED)),
        until_s=30,
    )
    assert actions(told) == [("a", "trigger", 0), ("a", "acknowledge", 5), ("a", "resolve", 10)]
    _, told = run(
        (0, transition("a", 1)),
        (10, note("a", NoteAction.CLOSE)),
        (12, transition("a", 2, UPDATED, flaps=1)),
        until_s=30,
    )
    assert [action for _, action, _ in actions(told)] == ["trigger", "resolve", "trigger"]


def test_routes_name_the_owner() -> None:
    """The first that fits; a fault of nobody has no such label."""
    owners = (
        Owner(name="net", patterns={"layer": "UNDERLAY", "component": "switch:*"}),
        Owner(name="train", patterns={"task": "job*"}),
    )
    config = PagerConfig(owners=owners)
    pager, _ = run((0, transition("a", 1)), until_s=1, config=config)
    assert pager.firing()[0].labels["owner"] == "train"
    pager, _ = run((0, transition("a", 1, tasks=())), until_s=1, config=config)
    assert "owner" not in pager.firing()[0].labels


LIVES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from("abcdefgh"),
        st.sampled_from(["open", "resolve", "silence", "close", "acknowledge", "end"]),
        st.integers(1, 80),
    ),
    max_size=40,
)


def records(life: list[tuple[int, str, str, int]]) -> list[tuple[int, Any]]:
    """Return records with their times that could stand in the topics."""
    at_s, seqs, found = 0, Counter[str](), list[tuple[int, Any]]()
    resolved: set[str] = set()
    for step_s, name, what, number in life:
        at_s += step_s
        if what in {"open", "resolve"}:
            back = name in resolved and what == "open"
            seqs[name] += 1
            state = RESOLVED if what == "resolve" else UPDATED if seqs[name] > 1 else None
            (resolved.add if what == "resolve" else resolved.discard)(name)
            found.append((at_s, transition(
                name, seqs[name], state or FaultLifecycle.OPEN, flaps=seqs[name] if back else 0,
                severity="info" if number % 7 == 0 else "critical",
            )))  # fmt: skip
        elif what == "silence":
            found.append((at_s, silence(name, at_s + number % 20, at_s + number, fault_id=name)))
        elif what == "end":
            found.append((at_s, silence(name, 0, at_s, fault_id=name)))
        else:
            action = NoteAction.CLOSE if what == "close" else NoteAction.ACKNOWLEDGE
            found.append((at_s, note(name, action, str(number))))
    return found


@given(life=LIVES, looks=st.lists(st.integers(0, 1_000), max_size=10))
def test_when_somebody_looks_changes_nothing(
    life: list[tuple[int, str, str, int]], looks: list[int]
) -> None:
    """A replay in one go tells the same as a process that lets time pass in small steps."""
    config = PagerConfig(storm_faults=3)
    steps = records(life)
    _, at_once = run(*steps, until_s=2_000, config=config)
    pager, told = Pager(config), list[Notification]()
    pending = sorted({*looks, *range(0, 1_500, 7)})
    for at_s, record in steps:
        while pending and pending[0] < at_s:
            told += pager.advance(BEGIN + pending.pop(0) * S)
        told += apply(pager, record, BEGIN + at_s * S)
    for look_s in pending:
        told += pager.advance(BEGIN + look_s * S)
    told += pager.advance(BEGIN + 2_000 * S)
    assert told == at_once


@given(life=LIVES)
def test_pages_begin_and_end_in_turns(life: list[tuple[int, str, str, int]]) -> None:
    """Nothing is resolved that was not triggered, nothing triggered twice; positions grow."""
    pager, told = run(*records(life), until_s=2_000, config=PagerConfig(storm_faults=3))
    begun: dict[str, Page] = {}
    for notification in told:
        page, action = notification.page, notification.action
        if page is None:
            continue
        if action is Action.TRIGGER:
            assert page.page_id not in begun
            begun[page.page_id] = page
        else:
            assert page.page_id in begun
        if action is Action.RESOLVE:
            del begun[page.page_id]
    assert begun.keys() == {page.page_id for page in pager.firing()}
    positions = [n.position for n in told]
    assert positions == sorted(set(positions))
