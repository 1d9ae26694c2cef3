"""Silences as Alertmanager's: a mirror, so that whoever looks there sees who silenced what.

The bridge pages nobody of what is silenced, whatever Alertmanager does. So the mirror is confined
to the bridge's own alerts, and never hides one that the bridge tells: Alertmanager swallows also
the *end* of an alert that is silenced, and a page that began before would then stay open with
whoever got it. Such pages are left out by their ids.

A silence is known to be ours by who made it and by the last words of its comment.
"""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ops.bridge.paging.labels import TASK
from ops.bridge.paging.page import Page
from ops.bridge.targets.alertmanager import ALERT_NAME
from ops.bridge.targets.text import iso
from schemas.records import Matcher, Silence
from schemas.units import US_PER_S

PATH: Final = "/api/v2/silences"
# Of one silence, behind the path without the s.
ONE: Final = "/api/v2/silence/"
CREATOR: Final = "SkeletonHunter"
# Alertmanager keeps milliseconds, and takes no end that is over by its clock.
TOLERANCE_US: Final = US_PER_S
_SPECIAL: Final = re.compile(r"([\\.+()|\[\]{}^$])")
_MARK: Final = re.compile(r"\[(skeletonhunter \S+ \S+)\]\Z")


class Change(NamedTuple):
    """Bodies of silences to be made, and Alertmanager's ids of those to be ended."""

    made: list[bytes]
    ended: list[str]


def body(silence: Silence, pages: Iterable[Page]) -> dict[str, Any]:
    """Return a silence as Alertmanager takes it.

    Parameters
    ----------
    pages
        All that the bridge tells of, with those that ended lately.
    """
    own = [
        _matcher("alertname", ALERT_NAME),
        _matcher("cluster", silence.cluster),
        *(_converted(one) for one in silence.matchers),
    ]
    told = sorted(page.page_id for page in pages if all(_fits(one, page) for one in own))
    if told:
        out = "|".join(map(_escaped, told))
        own.append({"name": "fault_id", "value": out, "isRegex": True, "isEqual": False})
    return {
        "matchers": own,
        "startsAt": iso(silence.from_at),
        "endsAt": iso(silence.until_at),
        "createdBy": f"{CREATOR}: {silence.author}",
        "comment": f"{silence.reason} [{_mark(silence)}]",
    }


def changes(
    wanted: Sequence[Silence],
    pages: Sequence[Page],
    there: Iterable[Any],
    cluster: str,
    now_us: int,
) -> Change:
    """Return what makes Alertmanager's silences of a cluster the wanted ones; nothing twice.

    Parameters
    ----------
    there
        Alertmanager's silences, as its API lists them; those of others are left alone.
    """
    kept: dict[str, list[Any]] = {}
    for one in there:
        mark = _MARK.search(str(one.get("comment", "")))
        ours = str(one.get("createdBy", "")).startswith(f"{CREATOR}: ")
        active = one.get("status", {}).get("state") != "expired"
        if ours and active and mark and mark[1].startswith(f"skeletonhunter {cluster} "):
            kept.setdefault(mark[1], []).append(one)
    made: list[bytes] = []
    for silence in wanted:
        if silence.until_at <= now_us + TOLERANCE_US:
            continue
        new = body(silence, pages)
        same = sorted(
            (one for one in kept.get(_mark(silence), []) if _does(one, new)),
            key=lambda one: str(one["id"]),
        )
        if same:
            # Two bridges' targets may be one cluster of Alertmanagers: one is enough.
            kept[_mark(silence)].remove(same[0])
        else:
            made.append(json.dumps(new).encode())
    ended = [str(one["id"]) for ones in kept.values() for one in ones]
    return Change(made, ended)


def _mark(silence: Silence) -> str:
    return f"skeletonhunter {silence.cluster} {silence.silence_id}"


def _matcher(name: str, value: str, *, regex: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "isRegex": regex, "isEqual": True}


def _escaped(text: str) -> str:
    """Return a text as a regular expression of RE2 that means it; * and ? are left."""
    return _SPECIAL.sub(r"\\\1", text).replace("*", r"\*").replace("?", r"\?")


def _converted(one: Matcher) -> dict[str, Any]:
    """Return a condition as a matcher; the label of tasks lists all that are hit."""
    if one.label != TASK and not set("*?") & set(one.pattern):
        return _matcher(one.label, one.pattern)
    pattern = _SPECIAL.sub(r"\\\1", one.pattern).replace("*", ".*").replace("?", ".")
    if one.label == TASK:
        pattern = f"(?:.*,)?(?:{pattern})(?:,.*)?"
    return _matcher(one.label, f"(?s:{pattern})", regex=True)


def _fits(matcher: dict[str, Any], page: Page) -> bool:
    value = {"alertname": ALERT_NAME, "fault_id": page.page_id, **page.labels}.get(
        matcher["name"], ""
    )
    if matcher["isRegex"]:
        return re.fullmatch(matcher["value"], value) is not None
    return bool(value == matcher["value"])


def _does(there: Any, new: dict[str, Any]) -> bool:
    """Return whether a silence that is there does what a new one would.

    It may leave out more pages: they have ended, and do not begin again while it lasts.
    """
    known, wanted = (
        {(m["name"], m["value"], m["isRegex"], m.get("isEqual", True)) for m in one["matchers"]}
        for one in (there, new)
    )
    out_known, out_wanted = (
        {text for name, value, _, equal in found if not equal for text in value.split("|")}
        for found in (known, wanted)
    )
    return (
        {m for m in known if m[3]} == {m for m in wanted if m[3]}
        and out_known >= out_wanted
        and abs(_us(there["endsAt"]) - _us(new["endsAt"])) < TOLERANCE_US
        and there["comment"] == new["comment"]
    )


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * US_PER_S)
