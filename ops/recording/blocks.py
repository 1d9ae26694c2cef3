"""The blocks of a recording's file, read ahead: as messages where a kernel can, or as records."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ops.recording.container import BlockExtent, ContainerReader, DamageError
from ops.recording.shape import shape_of
from schemas.topics import Topic

if TYPE_CHECKING:
    from ops.recording.messages import MessageBlock

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


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a block that could be read, and what was wrong with the next one.

    `position` is where the block begins.
    """

    position: int
    records: Sequence[dict[str, Any]]
    damage: DamageError | None = None


class BlockReader:
    """Reads blocks of a file of a topic's records.

    Parameters
    ----------
    pool
        Where blocks are read before they are asked for.
    kernels
        Whether a kernel reads what it can.

    Raises
    ------
    DamageError
        If the file is missing, cannot be opened or has no whole header.
    """

    def __init__(self, topic: Topic, path: Path, pool: Executor, *, kernels: bool) -> None:
        self._topic = topic
        self._pool = pool
        try:
            self._container = ContainerReader(path, shape_of(topic).plain)
        except FileNotFoundError as error:
            raise DamageError(path, 0, "the file is missing") from error
        except OSError as error:
            # A folder in its place, say, or one that is somebody else's.
            raise DamageError(path, 0, f"cannot be read: {error.strerror}") from error
        self._kernels = kernels and self._container.current

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def spans(self) -> Iterator[BlockExtent]:
        """Yield where the blocks are; raises DamageError at the first head that is broken."""
        return self._container.spans()

    def read(
        self, spans: Iterable[BlockExtent], header: bytes, depth: int
    ) -> "Iterator[tuple[BlockExtent, MessageBlock | Records]]":
        """Yield blocks with what stands in them; raises DamageError at one that is not whole.

        Parameters
        ----------
        header
            What goes before the datum of a message; only a `MessageBlock` holds messages.
        depth
            How many are begun at a time.
        """
        return ahead(self._pool, self._reading(header), spans, depth)

    def records(self, span: BlockExtent) -> Records:
        """Return the records of a block, read without a kernel."""
        return self._records(span, self._container.content(span))

    def _reading(self, header: bytes) -> "Callable[[BlockExtent], MessageBlock | Records]":
        """Return what reads a block."""
        if not self._kernels:
            return self.records
        # Here, since loading the kernel takes a second.
        from ops.recording import messages  # noqa: PLC0415

        def read(span: BlockExtent) -> "MessageBlock | Records":
            content = self._container.content(span)
            return messages.read(self._topic, content, span.count, header) or self._records(
                span, content
            )

        return read

    def _records(self, span: BlockExtent, content: bytes) -> Records:
        try:
            return Records(span.position, self._container.records(span, content))
        except DamageError as damage:
            return Records(span.position, damage.whole, damage)
