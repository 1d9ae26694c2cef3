"""The demonstration judges itself by the verdict, and gives up with a sentence."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from ops.demo import run as demo_module
from ops.demo.run import Demo, DemoFailedError
from ops.demo.scoreboard import Scoreboard
from ops.log.watch import WatchedRecord
from schemas import records as rec
from schemas import topics
from schemas.enums import (
    AgentState,
    AnomalyKind,
    AnomalyState,
    FaultLifecycle,
    Layer,
    PingListPhase,
    TargetOrigin,
    TraceCause,
)
from tests.unit.ops.demo.test_scoreboard import anomaly

LINK = "link:leaf:p0-0--spine:0"


class ScriptedTopics:
    """Plays a healthy lab, then the given fault events one by one after the link was cut."""

    def __init__(self, events: list[rec.FaultEvent]) -> None:
        self.events = events
        self.cut = False

    def poll(self, timeout_s: float) -> Iterator[WatchedRecord]:
        """Yield what a real watch would."""
        assert timeout_s > 0
        if not self.cut:
            yield from (seen(topic, record) for topic, record in healthy())
        elif self.events:
            yield seen(topics.FAULT_EVENT, self.events.pop(0))


class Stage:
    """Cuts and heals the script's link."""

    def __init__(self, script: ScriptedTopics) -> None:
        self.script = script
        self.healed = False

    def break_link(self) -> str:
        """Let the script go on."""
        self.script.cut = True
        return LINK

    def heal(self) -> None:
        """Remember it."""
        self.healed = True

    def check(self) -> None:
        """Nothing can end here."""


class Silent:
    """A screen that shows nothing."""

    def step(self, text: str) -> None:
        """Show nothing."""

    def update(self, board: Scoreboard, since_fault_s: float | None) -> None:
        """Show nothing."""

    def verdict(self, fault: rec.FaultEvent, since_fault_s: float) -> None:
        """Show nothing."""


OFFSETS = count()


def seen(topic: topics.Topic, record: Any) -> WatchedRecord:
    """Return a record as read."""
    return WatchedRecord(topic.name, "a", record, None, 0, next(OFFSETS), 0)


def healthy() -> list[tuple[topics.Topic, Any]]:
    """Return what a healthy lab of one agent publishes."""
    numbers: dict[str, Any] = dict.fromkeys(
        [f for f, hint in rec.Heartbeat.__annotations__.items() if hint is int], 0
    )
    numbers["targets_active"] = 1
    numbers["pinglist_version"] = 1
    beat = rec.Heartbeat(
        cluster="c",
        agent_id="a",
        host_id="h",
        state=AgentState.RUNNING,
        broker_away=False,
        **numbers,
    )
    target = rec.PingTarget(src="a", dst="b", task_id="t", origin=TargetOrigin.SKELETON, flows=1)
    lists = rec.PingList(
        cluster="c",
        agent_id="a",
        version=1,
        updated_at=0,
        phase=PingListPhase.RUNTIME,
        targets=(target,),
    )
    trace = rec.PathTrace(
        cluster="c",
        path_id="a>b",
        src="a",
        dst="b",
        flow=0,
        agent_id="a",
        traced_at=0,
        cause=TraceCause.DISCOVERY,
        complete=True,
        hops=(),
    )
    progress = rec.Anomaly(
        cluster="c",
        anomaly_id="p",
        kind=AnomalyKind.PROGRESS,
        state=AnomalyState.ONGOING,
        path_id="",
        src="",
        dst="",
        flow=0,
        agent_id="",
        event_at=1,
        onset_at=1,
        detector="progress",
        sent=0,
        lost=0,
    )
    return [
        (topics.HEARTBEAT, beat),
        (topics.PINGLIST, lists),
        (topics.PATH_TRACE, trace),
        (topics.ANOMALY, progress),
    ]


def newer_list(made: list[tuple[topics.Topic, Any]]) -> tuple[topics.Topic, Any]:
    """Return a later version of the ping list among those records."""
    return next(
        (topic, replace(record, version=2))
        for topic, record in made
        if isinstance(record, rec.PingList)
    )


def fault(component: str, state: FaultLifecycle) -> rec.FaultEvent:
    """Return a transition that blames the component."""
    return rec.FaultEvent(
        cluster="c",
        fault_id="f",
        seq=1,
        state=state,
        event_at=2,
        onset_at=1,
        opened_at=2,
        resolved_at=3 if state is FaultLifecycle.RESOLVED else None,
        layer=Layer.UNDERLAY,
        component_kind="LINK",
        component_id=component,
        decided=True,
        fault_kind="connectivity",
        severity="critical",
        confidence=0.99,
        summary="s",
        bad_paths=4,
        good_paths=0,
        unexplained_paths=0,
        flaps=0,
        tasks=(),
        candidates=(),
        evidence=(),
    )


def play(events: list[rec.FaultEvent]) -> tuple[Demo, Stage]:
    """Return a demonstration over the script."""
    script = ScriptedTopics(events)
    stage = Stage(script)
    return Demo(script, stage, Silent(), agents=1), stage


def test_the_right_link_opened_and_resolved_is_a_success() -> None:
    """Opened, healed, resolved, all on the link that was cut."""
    demo, stage = play([fault(LINK, FaultLifecycle.OPEN), fault(LINK, FaultLifecycle.RESOLVED)])
    result = demo.run()
    assert result.named_the_link
    assert stage.healed


def test_a_wrong_component_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict on another link does not pass, and the message says what was blamed."""
    monkeypatch.setattr(demo_module, "VERDICT_TIMEOUT_S", 0.2)
    demo, _ = play([fault("link:other", FaultLifecycle.OPEN)])
    with pytest.raises(DemoFailedError, match=r"no verdict named the link.*link:other"):
        demo.run()


def test_a_fault_that_never_resolves_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening alone is not enough."""
    monkeypatch.setattr(demo_module, "RESOLVE_TIMEOUT_S", 0.2)
    demo, _ = play([fault(LINK, FaultLifecycle.OPEN)])
    with pytest.raises(DemoFailedError, match="not resolved"):
        demo.run()


def test_anomalies_keep_the_lab_from_being_called_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is not cut while something is wrong already."""
    monkeypatch.setattr(demo_module, "HEALTHY_TIMEOUT_S", 0.2)
    demo, stage = play([])
    begun = anomaly(0, AnomalyState.ONSET).record
    demo._board.count_record(seen(topics.ANOMALY, begun))
    with pytest.raises(DemoFailedError, match="1 anomalies open"):
        demo.run()
    assert not stage.script.cut


def test_a_list_not_followed_yet_keeps_the_lab_from_being_called_healthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent's heartbeat still names the version before."""
    monkeypatch.setattr(demo_module, "HEALTHY_TIMEOUT_S", 0.2)
    demo, stage = play([])
    made = healthy()
    monkeypatch.setattr("tests.unit.ops.demo.test_run.healthy", lambda: [*made, newer_list(made)])
    with pytest.raises(DemoFailedError, match="did not become healthy"):
        demo.run()
    assert not stage.script.cut
