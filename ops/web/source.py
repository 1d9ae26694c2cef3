"""Where the pages' content comes from: live topics or a recording."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ops.view.cluster import ClusterView
from ops.web.pages.page import NOTHING, Wanted

T = TypeVar("T")


def nothing(_view: ClusterView) -> Wanted:
    """Return that nothing is wanted beside what a view always holds."""
    return NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong with the source, since when, and what to do; the page shows it on top.

    `since_ms` is milliseconds since the epoch.
    """

    what: str
    todo: str
    since_ms: int


class Source(Protocol):
    """A view that others may look at while records are folded into it."""

    def start(self, changed: Callable[[], None]) -> None:
        """Begin; `changed` is called, from any thread, when something came."""
        ...

    def stop(self) -> None:
        """End."""
        ...

    @property
    def alive(self) -> bool:
        """Whether what reads it runs."""
        ...

    @property
    def ready(self) -> bool:
        """Whether everything that was there at the start has been read."""
        ...

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong now; None: nothing."""
        ...

    @property
    def folder(self) -> str | None:
        """Folder of a recording; None: the source is live."""
        ...

    @property
    def span_ms(self) -> tuple[int, int] | None:
        """First and last time of a recording; None: the source is live."""
        ...

    def look(
        self,
        use: Callable[[ClusterView, int], T],
        at_ms: int | None = None,
        wanted: Callable[[ClusterView], Wanted] = nothing,
    ) -> T:
        """Return what a function makes of the view and the time.

        Parameters
        ----------
        use
            Called with the view and the time in milliseconds; must not keep the view.
        at_ms
            As it was at that time; None: now, or at the end of a recording.
        wanted
            Names what the view is to hold of this page alone; live records come from now on.

        Raises
        ------
        UnknownItemError
            If the time is outside what the source holds.
        """
        ...


def waits_for(source: Source) -> str | None:
    """Return why a source is not ready; None: it is."""
    if source.ready:
        return None
    return "still reading what is there" if source.trouble is None else source.trouble.what
