"""The page's server in a thread, over a view that stands still."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import uvicorn

from ops.view.cluster import ClusterView
from ops.web.pages.page import Wanted
from ops.web.security import LOCAL_NAMES, Access
from ops.web.serve import Address, bound_socket
from ops.web.server import build
from ops.web.source import Trouble, nothing

T = TypeVar("T")


class StillSource:
    """A view at a time; `change` folds more into it."""

    alive = True
    ready = True
    trouble: Trouble | None = None
    span_ms: tuple[int, int] | None = None
    folder: str | None = None

    def __init__(self, view: ClusterView, now_ms: int) -> None:
        self.view = view
        self.now_ms = now_ms
        self._lock = threading.Lock()
        self._changed: Callable[[], None] = lambda: None

    def start(self, changed: Callable[[], None]) -> None:
        """Note who wants to know of changes."""
        self._changed = changed

    def stop(self) -> None:
        """Nothing runs."""

    def change(self, use: Callable[[ClusterView], None], now_ms: int | None = None) -> None:
        """Change the view, and the time."""
        with self._lock:
            use(self.view)
            self.now_ms = now_ms or self.now_ms
        self._changed()

    def look(
        self,
        use: Callable[[ClusterView, int], T],
        at_ms: int | None = None,
        wanted: Callable[[ClusterView], Wanted] = nothing,
    ) -> T:
        """Return what a function makes of the view; what it wants is what somebody put there."""
        del wanted
        with self._lock:
            return use(self.view, self.now_ms if at_ms is None else at_ms)


@contextmanager
def served(source: StillSource) -> Iterator[str]:
    """Serve the pages of a source in a thread; give their address."""
    with bound_socket(Address(host="127.0.0.1", port=0)) as own:
        access = Access(hosts=LOCAL_NAMES)
        server = uvicorn.Server(
            uvicorn.Config(build(source, access), log_level="warning", timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{own.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
