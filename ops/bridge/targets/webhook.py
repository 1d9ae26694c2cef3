"""Webhooks: every transition as a CloudEvent 1.0, structured or binary, signed if there is a key.

The id is `fault_id/seq`: a receiver that gets one twice ignores the second. It stands in
`Idempotency-Key` as well. Signatures are those of Standard Webhooks
(https://www.standardwebhooks.com): HMAC-SHA256 of id, time and body.
"""

import base64
import hashlib
import hmac
import json
from typing import Any, Final

from ops.bridge.config import BINARY
from ops.bridge.paging.page import Notification
from ops.bridge.targets.text import Links, first_step, iso
from schemas.codec import to_datum
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent

TYPES: Final = {
    FaultLifecycle.OPEN: "skeletonhunter.fault.opened.v1",
    FaultLifecycle.UPDATED: "skeletonhunter.fault.updated.v1",
    FaultLifecycle.RESOLVED: "skeletonhunter.fault.resolved.v1",
}
STRUCTURED_TYPE: Final = "application/cloudevents+json"
JSON_TYPE: Final = "application/json"


def post_of(
    notification: Notification, mode: str, secret: str | None, now_s: int, links: Links
) -> tuple[bytes, dict[str, str]] | None:
    """Return body and headers; None if the notification is of no transition."""
    event = notification.transition
    if event is None:
        return None
    attributes, data = _attributes(event), _data(notification, event, links)
    if mode == BINARY:
        content = data
        headers = {f"ce-{name}": _header(value) for name, value in attributes.items()}
        headers["content-type"] = JSON_TYPE
    else:
        content = {**attributes, "datacontenttype": JSON_TYPE, "data": data}
        headers = {"content-type": STRUCTURED_TYPE}
    body = json.dumps(content).encode()
    headers["idempotency-key"] = _header(attributes["id"])
    if secret is not None:
        headers |= signed(_header(attributes["id"]), now_s, body, secret)
    return body, headers


def signed(event_id: str, now_s: int, body: bytes, secret: str) -> dict[str, str]:
    """Return the headers that prove who sent a body, and when.

    >>> signed("f/1", 1_700_000_000, b"{}", "key")["webhook-signature"]
    'v1,iibHE/hvICTeEjtyqS2qxijpqIjP59P49oYcR78etAw='
    """
    text = f"{event_id}.{now_s}.".encode() + body
    digest = hmac.new(secret.encode(), text, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _attributes(event: FaultEvent) -> dict[str, str]:
    return {
        "specversion": "1.0",
        "id": f"{event.fault_id}/{event.seq}",
        "source": f"/skeletonhunter/{event.cluster}",
        "type": TYPES[event.state],
        "subject": event.fault_id,
        "time": iso(event.event_at),
    }


def _data(notification: Notification, event: FaultEvent, links: Links) -> dict[str, Any]:
    found: dict[str, Any] = dict(to_datum(event))
    for name in ("event_at", "onset_at", "opened_at", "resolved_at"):
        found[name] = None if found[name] is None else iso(found[name])
    return found | {
        "silenced": notification.silenced,
        "page_id": None if notification.page is None else notification.page.page_id,
        "first_step": first_step(event),
        "page_url": links.page_of(event),
        "runbook_url": links.runbook_of(event),
    }


def _header(value: str) -> str:
    """Return a value as CloudEvents' HTTP binding has it in a header: others are %-encoded."""
    return "".join(
        char if " " < char < "\x7f" and char not in '"%' else
        "".join(f"%{byte:02X}" for byte in char.encode())
        for char in value
    )  # fmt: skip
