"""Rebuilds several partitions, two at a time."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import OFFSET_INVALID, TopicPartition

from streams.edge.earlier import Beat
from streams.edge.errors import SessionLostError
from streams.edge.lookback import LogReader
from streams.edge.session import Restorer, Session

# While one waits for the broker or is in a kernel the other goes on; each holds a look-back that
# it reads.
AT_ONCE: Final = 2


class _AbandonedError(SessionLostError):
    """Another partition could not be rebuilt, so that nobody wants this one."""


def restore_all(
    restorer: Restorer, committed: Sequence[TopicPartition], epoch: int, beat: Beat
) -> list[Session]:
    """Return the sessions of partitions as they were at their committed offsets, in order.

    Parameters
    ----------
    committed
        Offsets (negative: none) with their metadata.
    beat
        Is called again and again meanwhile, from several threads, and may raise.

    Raises
    ------
    SessionLostError
        If the broker does not answer; what else one of them raises. Then none is rebuilt.
    """
    failed = threading.Event()

    def checked() -> None:
        beat()
        if failed.is_set():
            raise _AbandonedError("another partition could not be rebuilt")

    def restored(place: TopicPartition) -> Session:
        try:
            checked()
            if place.error is not None:
                raise SessionLostError(f"committed offset: {place.error.str()}")
            offset = place.offset if place.offset >= 0 else OFFSET_INVALID
            with LogReader(restorer.settings, checked) as reader:
                return restorer.restore(reader, place.partition, epoch, (offset, place.metadata))
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="restore") as pool:
        begun = [pool.submit(restored, place) for place in committed]
    errors = [error for future in begun if (error := future.exception()) is not None]
    sessions = [future.result() for future in begun if future.exception() is None]
    try:
        if errors:
            raise next((e for e in errors if not isinstance(e, _AbandonedError)), errors[0])
        for session in sessions:
            restorer.read_earlier(session)
    except BaseException:
        for session in sessions:
            session.give_up()
        raise
    return sessions
