"""Structured logs: one event name per fact, for people or, with `--log-json`, for machines.

The line's shape is part of the contract, as the topics are. Standard library
only: the agent's memory has no room for a logging package.
"""

import json
import logging
import sys
import time
from typing import Any, Final, TextIO

# Names whose values are never written, wherever they come from.
SECRET_MARKS: Final = ("password", "secret", "token", "ssl.key")


# Above all our loggers.
OWN: Final = "skeletonhunter"


class EventLog:
    """Logs facts as an event name and fields.

    >>> log = EventLog("agent")
    >>> log.info("endpoint.registered", endpoint_id="w0/r0")
    """

    def __init__(self, process: str) -> None:
        self._logger = logging.getLogger(f"{OWN}.{process}")

    def debug(self, event: str, **fields: Any) -> None:
        """Log a fact for developers."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log a fact."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log something that an operator may want to look at."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log something that an operator must look at."""
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": _masked(fields)})


def _masked(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        k: "***" if any(mark in k.lower() for mark in SECRET_MARKS) else v
        for k, v in fields.items()
    }


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _timestamp(record.created),
            "level": record.levelname.lower(),
            "process": record.name.removeprefix(f"{OWN}."),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "fields", {}).items())
        name = record.name.removeprefix(f"{OWN}.")
        line = f"{_timestamp(record.created)} {record.levelname:<7} {name}: {record.getMessage()}"
        if fields:
            line = f"{line} {fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


def _timestamp(epoch_s: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch_s))
    return f"{whole}.{int(epoch_s % 1 * 1000):03d}Z"


def setup_logging(*, as_json: bool, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream`, standard error unless given.

    A level below INFO is for our own facts: compilers and clients write megabytes there.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _PlainFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.setLevel(max(root.level, logging.INFO))
    logging.getLogger(OWN).setLevel(level)
