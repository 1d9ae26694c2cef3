"""A source that holds a view in memory."""

from collections.abc import Callable
from typing import TypeVar

from ops.view.cluster import ClusterView
from ops.web.pages.page import Wanted
from ops.web.source import Trouble, nothing
from tests.unit.ops.recording_samples import START_MS

T = TypeVar("T")


class HeldSource:
    """Shows a view that the test changes, at a time that it sets."""

    def __init__(self, view: ClusterView | None = None) -> None:
        self.view = view or ClusterView()
        self.now_ms = START_MS
        self.ready = True
        self.alive = True
        self.trouble: Trouble | None = None
        self.folder: str | None = None
        self.span_ms: tuple[int, int] | None = None
        self.looks = 0
        self.changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        """Note who wants to know of changes."""
        self.changed = changed

    def stop(self) -> None:
        """Nothing runs."""

    def look(
        self,
        use: Callable[[ClusterView, int], T],
        at_ms: int | None = None,
        wanted: Callable[[ClusterView], Wanted] = nothing,
    ) -> T:
        """Return what a function makes of the view; what it wants is what somebody put there."""
        del wanted
        self.looks += 1
        return use(self.view, self.now_ms if at_ms is None else at_ms)
