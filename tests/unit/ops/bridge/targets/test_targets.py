"""What targets are sent: as their interfaces want it, whatever a record says."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bridge.paging.page import Action, Notification, Page, Position
from ops.bridge.paging.pager import Pager, PagerConfig
from ops.bridge.targets import alertmanager, pagerduty, webhook
from ops.bridge.targets.text import MAX_LISTED, Links, evidence, summary
from schemas.enums import FaultLifecycle
from tests.unit.ops.bridge.made import BEGIN, S, transition

LINKS = Links(page="https://x/{cluster}/{fault_id}", runbook="https://r#{kind}")
NASTY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def told(*events: Any, config: PagerConfig = PagerConfig()) -> list[Notification]:  # noqa: B008
    """Return what follows from transitions, one a second."""
    pager = Pager(config)
    return [n for at_s, e in enumerate(events) for n in pager.apply_fault(e, BEGIN + at_s * S)]


def page(notification: Notification) -> Page:
    """Return the page of a notification."""
    assert notification.page is not None
    return notification.page


def test_alertmanager_gets_labels_that_last_and_texts_that_change() -> None:
    """Numbers are no labels; an open alert ends later, one that ended when it did."""
    opened, changed = told(
        transition("a", 1), transition("a", 2, FaultLifecycle.UPDATED, flaps=3, confidence=0.5)
    )
    first, second = (alertmanager.alert(page(n), BEGIN, 240 * S, LINKS) for n in (opened, changed))
    assert first["labels"] == second["labels"]
    assert first["labels"] == {
        "alertname": "SkeletonHunterFault", "fault_id": "a", "cluster": "lab", "task": "job1",
        "layer": "UNDERLAY", "component": "link:a", "component_kind": "LINK",
        "kind": "connectivity", "severity": "critical",
    }  # fmt: skip
    assert "came back 3 times" in second["annotations"]["summary"]
    assert first["endsAt"] == "2026-09-21T14:17:20.000000Z"
    assert first["generatorURL"] == "https://x/lab/a"
    assert first["annotations"]["runbook_url"] == "https://r#connectivity"
    assert first["annotations"]["first_step"]


def test_a_storm_lists_its_faults_and_says_how_many_more() -> None:
    """A list that somebody reads at night is short."""
    events = [transition(f"f{n:02}", 1) for n in range(40)]
    storm = page(told(*events, config=PagerConfig(storm_faults=1))[-1])
    assert summary(storm) == "39 more faults at once in cluster lab"
    lines = evidence(storm).splitlines()
    assert len(lines) == MAX_LISTED + 1
    assert lines[0] == "critical connectivity link:f01 (f01)"
    assert lines[-1] == "and 19 more"


def test_posts_to_alertmanager_are_bounded() -> None:
    """A storm of pages goes in several."""
    events = [transition(f"f{n}", 1) for n in range(450)]
    pages = [page(n) for n in told(*events, config=PagerConfig(storm_faults=1000))]
    sizes = [len(json.loads(b)) for b in alertmanager.bodies(pages, BEGIN, 1, LINKS)]
    assert sizes == [200, 200, 50]


def test_pagerduty_has_one_incident_for_a_page() -> None:
    """By its key; a resolve has no payload, and an unknown severity is one that the API knows."""
    opened, ended = told(transition("a", 1, severity="odd"), transition("b", 1))
    body = pagerduty.body(opened, "key", LINKS)
    assert body is None
    assert ended.page is not None
    event = json.loads(pagerduty.body(ended, "key", LINKS) or b"")
    assert (event["event_action"], event["dedup_key"]) == ("trigger", "b")
    assert event["payload"]["severity"] == "critical"
    assert [link["href"] for link in event["links"]] == [
        "https://x/lab/b",
        "https://r#connectivity",
    ]
    resolve = Notification(position=Position(1, 1), page=ended.page, action=Action.RESOLVE)
    assert set(json.loads(pagerduty.body(resolve, "key", LINKS) or b"")) == {
        "routing_key", "event_action", "dedup_key",
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_a_webhook_gets_a_cloud_event(mode: str) -> None:
    """The id is fault and number; the data has the whole record and where to look."""
    (notification,) = told(transition("a", 7))
    made = webhook.post_of(notification, mode, None, 1, LINKS)
    assert made is not None
    body, headers = made
    content = json.loads(body)
    attributes = (
        content if mode == "structured"
        else {k.removeprefix("ce-"): v for k, v in headers.items() if k.startswith("ce-")}
    )  # fmt: skip
    assert attributes["specversion"] == "1.0"
    assert attributes["id"] == headers["idempotency-key"] == "a/7"
    assert attributes["type"] == "skeletonhunter.fault.opened.v1"
    assert attributes["subject"] == "a"
    data = content["data"] if mode == "structured" else content
    assert data["evidence"] == ["12 of 12 probes lost"]
    assert data["page_url"] == "https://x/lab/a"
    assert data["silenced"] is False


def test_a_signature_covers_id_time_and_body() -> None:
    """As receivers of Standard Webhooks compute it."""
    (notification,) = told(transition("a", 1))
    made = webhook.post_of(notification, "structured", "secret", 1_700_000_000, LINKS)
    assert made is not None
    body, headers = made
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"secret", text, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


@given(text=NASTY, fault_id=NASTY)
def test_whatever_a_record_says_it_can_be_sent(text: str, fault_id: str) -> None:
    """Headers have no line breaks, bodies are JSON, addresses have no foreign parts."""
    event = transition(
        fault_id, 1, summary=text, component_id=text, fault_kind=text, evidence=(text,),
        tasks=(text,), severity=text,
    )  # fmt: skip
    (notification,) = told(event, config=PagerConfig(least_severity="info"))
    for mode in ("structured", "binary"):
        made = webhook.post_of(notification, mode, "secret", 1, LINKS)
        assert made is not None
        json.loads(made[0])
        for value in made[1].values():
            assert value.isascii()
            assert value.isprintable()
    found = alertmanager.alert(page(notification), BEGIN, 1, LINKS)
    assert found["generatorURL"].startswith("https://x/lab/")
    assert len(found["generatorURL"].split("/")) == 5
    payload = json.loads(pagerduty.body(notification, "key", LINKS) or b"")["payload"]
    assert payload["severity"] in {"critical", "error", "warning", "info"}
