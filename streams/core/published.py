"""Windows read back from `probe.window.v1` as columns, for a restart.

`PublishedReader` reads record by record through fastavro; `streams.core.published_bytes` reads the
same by a kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.columns.arrays import Bools, Int64s
from schemas.records import PathWindow
from streams.columns.rounds import TRANSPORT_CODES, FlowKey
from streams.columns.statistics import FEATURES

# What is read of a window, and in which order; the features stand together.
FIELDS: Final = (
    *FEATURES,
    "transport",
    "window_start_at",
    "window_end_at",
    "sent",
    "ok",
    "lost",
    "host_delay_p50_ns",
)
PLACES: Final = {name: place for place, name in enumerate(FIELDS)}
# Stands for null.
NULL: Final = -(2**63)
# A record that is not to be read: undecodable, or of another cluster.
NOT_OURS: Final = -1

Undecodable = Callable[[DecodeError], None]
Intern = Callable[[FlowKey], FlowKey]


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Consecutive windows of the topic.

    Attributes
    ----------
    keys : 5-tuples, by number; the list of the reader, which grows
    numbers : (n,) whose windows these are
    values : (len(FIELDS), n)
    """

    keys: Sequence[FlowKey]
    numbers: Int64s
    values: Int64s

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, name: str) -> Int64s:
        """Return a field of all windows."""
        out: Int64s = self.values[PLACES[name]]
        return out

    @property
    def features(self) -> Int64s:
        """The seven features, (n, 7)."""
        out: Int64s = self.values[: len(FEATURES)].T
        return out

    def take(self, which: Bools | slice) -> "WindowColumns":
        """Return some of them."""
        return WindowColumns(self.keys, self.numbers[which], self.values[:, which])

    def key(self, place: int) -> FlowKey:
        """Return the 5-tuple of a window."""
        return self.keys[int(self.numbers[place])]

    def number(self, name: str, place: int) -> int | None:
        """Return a field of a window, None for null."""
        value = int(self[name][place])
        return None if value == NULL else value


class Reader(Protocol):
    """Turns messages into columns."""

    def read(self, values: Sequence[bytes]) -> WindowColumns:
        """Return the windows of consecutive messages, without what is not ours."""
        ...


class Keys:
    """Gives 5-tuples numbers, in the order in which they are met."""

    def __init__(self, intern: Intern) -> None:
        self.list: list[FlowKey] = []
        self._intern = intern
        self._numbers: dict[FlowKey, int] = {}

    def number(self, key: FlowKey) -> int:
        """Return the number of a 5-tuple."""
        number = self._numbers.get(key)
        if number is None:
            # The same key with whoever has it already: a copy takes some hundred bytes.
            key = self._intern(key)
            number = self._numbers[key] = len(self.list)
            self.list.append(key)
        return number


class PublishedReader:
    """Reads windows record by record."""

    def __init__(
        self, codec: Codec, cluster: str, undecodable: Undecodable, intern: Intern
    ) -> None:
        self._codec = codec
        self._cluster = cluster
        self._undecodable = undecodable
        self.keys = Keys(intern)

    def read(self, values: Sequence[bytes]) -> WindowColumns:
        """Return the windows of consecutive messages, without what is not ours."""
        out = np.zeros((len(FIELDS), len(values)), np.int64)
        numbers = np.array([self.read_one(v, out[:, n]) for n, v in enumerate(values)], np.int64)
        found = WindowColumns(self.keys.list, numbers, out)
        return found.take(numbers != NOT_OURS)

    def read_one(self, value: bytes, out: Int64s) -> int:
        """Read a message into (len(FIELDS),); return the 5-tuple's number, or NOT_OURS."""
        try:
            window: PathWindow = self._codec.decode(topics.PROBE_WINDOW, value)
            out[:] = _fields(window)
        except DecodeError as error:
            self._undecodable(error)
            return NOT_OURS
        except OverflowError:
            # A number that no long holds was not written by an encoder.
            return NOT_OURS
        if window.cluster != self._cluster:
            return NOT_OURS
        return self.keys.number((window.agent_id, window.src, window.dst, window.flow))


def _fields(window: PathWindow) -> list[int]:
    values = [
        TRANSPORT_CODES[window.transport.value] if name == "transport" else getattr(window, name)
        for name in FIELDS
    ]
    return [NULL if value is None else value for value in values]


def columns_of(windows: Sequence[PathWindow]) -> WindowColumns:
    """Return records as columns."""
    keys = Keys(lambda key: key)
    numbers = [keys.number((w.agent_id, w.src, w.dst, w.flow)) for w in windows]
    values = np.array([_fields(w) for w in windows], np.int64).reshape(-1, len(FIELDS))
    return WindowColumns(keys.list, np.array(numbers, np.int64), values.T)


def make_reader(codec: Codec, cluster: str, undecodable: Undecodable, intern: Intern) -> Reader:
    """Return the fastest reader that there is."""
    slow = PublishedReader(codec, cluster, undecodable, intern)
    # Here, since it imports this module.
    from streams.core.published_bytes import KernelReader  # noqa: PLC0415

    return KernelReader(codec.framer, cluster, slow)
