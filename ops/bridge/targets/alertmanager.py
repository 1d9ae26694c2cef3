"""Alertmanager's API v2: all open pages again and again, and the end of those that ended.

Alertmanager forgets an alert that nobody repeats, so a bridge that is gone leaves no page open for
ever. What ended is repeated for a while, too, in case it was away. `fault_id` is a label: grouped
by it (`group_by: [cluster, fault_id]`) each fault is a page of its own.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ops.bridge.paging.page import Page
from ops.bridge.targets.text import Links, annotations, iso, named

ALERT_NAME: Final = "SkeletonHunterFault"
PATH: Final = "/api/v2/alerts"
# Alertmanager keeps what is not repeated for so many distances: some posts may fail.
KEPT: Final = 4
# Alerts of a post; a page with all its evidence is some kilobytes.
AT_ONCE: Final = 200


def alert(page: Page, now_us: int, keep_us: int, links: Links) -> dict[str, Any]:
    """Return a page as an alert of the API."""
    ends_us = now_us + keep_us if page.ended_us is None else page.ended_us
    found: dict[str, Any] = {
        "labels": named({"alertname": ALERT_NAME, "fault_id": page.page_id, **page.labels}),
        "annotations": annotations(page, links),
        "startsAt": iso(page.since_us),
        "endsAt": iso(ends_us),
    }
    url = links.page_of(page.first)
    return found | ({"generatorURL": url} if url else {})


def bodies(pages: Iterable[Page], now_us: int, keep_us: int, links: Links) -> Iterator[bytes]:
    """Yield the bodies of the posts that tell of these pages."""
    alerts = [alert(page, now_us, keep_us, links) for page in pages]
    for first in range(0, len(alerts), AT_ONCE):
        yield json.dumps(alerts[first : first + AT_ONCE]).encode()


def endpoint(url: str) -> str:
    """Return the address of the API, given that of Alertmanager."""
    return url.rstrip("/") + PATH
