"""PagerDuty's Events API v2: one incident for a page, by `dedup_key`.

https://developer.pagerduty.com/docs/events-api-v2/trigger-events
"""

import json
from typing import Any, Final

from ops.bridge.paging.labels import SEVERITIES
from ops.bridge.paging.page import Action, Notification, Page
from ops.bridge.targets.text import Links, annotations, iso
from schemas.version import VERSION

# Limits of the API, in characters.
MAX_SUMMARY: Final = 1_024
MAX_KEY: Final = 255
EVENT_ACTIONS: Final = {
    Action.TRIGGER: "trigger",
    Action.UPDATE: "trigger",
    Action.ACKNOWLEDGE: "acknowledge",
    Action.RESOLVE: "resolve",
}
# The API refuses an event with any other word.
UNKNOWN_SEVERITY: Final = "error"
CLIENT: Final = f"SkeletonHunter {VERSION}"


def body(notification: Notification, routing_key: str, links: Links) -> bytes | None:
    """Return what to post; None if the notification is of no page."""
    page, action = notification.page, notification.action
    if page is None or action is None:
        return None
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": EVENT_ACTIONS[action],
        "dedup_key": page.page_id[:MAX_KEY],
    }
    if action in (Action.TRIGGER, Action.UPDATE):
        event |= {"payload": _payload(page, links), "client": CLIENT, "links": _links(page, links)}
    return json.dumps(event).encode()


def _payload(page: Page, links: Links) -> dict[str, Any]:
    texts, severity = annotations(page, links), page.labels["severity"]
    return {
        "summary": texts.pop("summary")[:MAX_SUMMARY],
        "source": texts["component"],
        "severity": severity if severity in SEVERITIES else UNKNOWN_SEVERITY,
        "timestamp": iso(page.since_us),
        "component": texts["component"],
        "group": page.labels["cluster"],
        "class": texts["kind"],
        "custom_details": {**texts, **page.labels},
    }


def _links(page: Page, links: Links) -> list[dict[str, str]]:
    found = (("incident", links.page_of(page.first)), ("first steps", links.runbook_of(page.first)))
    return [{"href": url, "text": text} for text, url in found if url]
