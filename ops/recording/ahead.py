"""Work done a little before it is asked for, in other threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(
    pool: Executor, work: Callable[[T], R], items: Iterable[T], depth: int
) -> Iterator[tuple[T, R]]:
    """Yield each item with what `work` returns for it, in order, up to `depth` of them begun.

    What `work` or the items raise is raised in its turn, after all that stands before it.
    """
    source = iter(items)
    begun: deque[tuple[T, Future[R]]] = deque()
    trouble: Exception | None = None
    while True:
        while trouble is None and len(begun) < depth:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - raised in its turn
                trouble = error
            else:
                begun.append((item, pool.submit(work, item)))
        if not begun:
            break
        item, future = begun.popleft()
        yield item, future.result()
    if trouble is not None:
        raise trouble
