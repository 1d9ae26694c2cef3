"""What a page is: a function from a view, parameters and a time to a JSON document."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ops.view.cluster import ClusterView

Document = dict[str, Any]
Params = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is read of those alone whom somebody looks at.

    Attributes
    ----------
    agents
        Whose RNICs' counters.
    jobs
        Whose ranks' collectives.
    """

    agents: Collection[str] = ()
    jobs: Collection[str] = ()


NOTHING: Final = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the operator's site.

    Attributes
    ----------
    name
        Part of its address: `/api/pages/<name>`.
    document
        Returns what it shows: JSON without null, and with mappings instead of lists wherever items
        come and go, so that a JSON Merge Patch (RFC 7396) between two of them is small.
        Its last argument is the time, in milliseconds since the epoch.
    least_gap_s
        Seconds between two documents, for one that costs much; 0: as often as the hub makes any.
    wanted
        Names what it shows that is read on demand; None: nothing.
    """

    name: str
    document: Callable[[ClusterView, Params, int], Document]
    least_gap_s: float = 0.0
    wanted: Callable[[ClusterView, Params], Wanted] | None = None


class UnknownItemError(LookupError):
    """What a page was asked for is not there; the message says what, `todo` what to do."""

    def __init__(self, what: str, todo: str) -> None:
        self.todo = todo
        super().__init__(what)


def without_none(document: Document) -> Document:
    """Leave out keys without a value: null would mean their removal in a patch."""
    return {key: value for key, value in document.items() if value is not None}


def merge_patch(old: Document, new: Document) -> Document:
    """Return the JSON Merge Patch (RFC 7396) that makes the one document the other.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4}})
    {'b': {'c': 4, 'd': None}, 'a': None}
    """
    patch: Document = {}
    for key, value in new.items():
        before = old.get(key)
        if before == value and key in old:
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    patch.update(dict.fromkeys(key for key in old if key not in new))
    return patch
