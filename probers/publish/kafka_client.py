"""The compiled part of confluent-kafka, loaded without the package around it.

`import confluent_kafka` brings its asyncio clients, and with them asyncio and ssl:
9 MB of memory of which an agent uses nothing (measured: 24.3 MB after the import,
13.5 MB this way). The extension module alone has Producer and Consumer. Where it
cannot be loaded this way (another packaging, another system), the whole package is.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from types import ModuleType
from typing import Any, Final

from schemas.process.eventlog import EventLog

_PACKAGE: Final = "confluent_kafka"
_EXTENSION: Final = "confluent_kafka.cimpl"
# Of both clients of an agent; the `[kafka]` table may change them.
DEFAULTS: Final = {
    "socket.keepalive.enable": True,
    # A broker that returns is connected to within a second or two. While all are away librdkafka
    # begins anew from the bootstrap list whenever the last of them has failed, with new brokers,
    # whose backoff begins anew, and a thread for each: from its default of 100 ms on that costs as
    # much as probing does.
    "reconnect.backoff.ms": 1_000,
    "reconnect.backoff.max.ms": 1_000,
    # Histograms of the client's own latencies (KIP-714), eight for each broker it knows, of 13 to
    # 16 KB each: nobody asks agents for them.
    "enable.metrics.push": False,
}


def load() -> Any:
    """Return the module that has Producer, Consumer, TopicPartition and KafkaError.

    Raises
    ------
    ImportError
        If confluent-kafka is not installed.
    """
    known = sys.modules.get(_EXTENSION)
    if known is not None:
        return known
    try:
        return _load_extension()
    except (ImportError, OSError):
        return importlib.import_module(_EXTENSION)


def _load_extension() -> ModuleType:
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise ImportError(f"{_PACKAGE} is not installed")
    finder = FileFinder(
        package.submodule_search_locations[0], (ExtensionFileLoader, EXTENSION_SUFFIXES)
    )
    spec = finder.find_spec(_EXTENSION)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_EXTENSION} is no extension module here")
    module = importlib.util.module_from_spec(spec)
    # Under its own name, so that a later import of the package finds the same one.
    sys.modules[_EXTENSION] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_EXTENSION]
        raise
    return module


class ClientLog:
    """Takes librdkafka's own log lines, in the shape of a `logging.Logger`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        # A broker that is away is tried again and again, with a line each time; the
        # agent says it once by itself.
        self.level = 0

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a line for developers; what matters arrives as an error callback, too."""
        self._log.debug("kafka.client", level=level, line=message % args if args else message)
