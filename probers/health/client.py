"""`skeletonhunter agent health`: asks the agent of this host or container about its health.

It serves liveness and readiness probes of containers whose image has no curl, and unix sockets.
"""

import argparse
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from probers.config.health import HealthAddress, parse_health
from probers.health.answers import LIVE, READY
from schemas.process.settings import CONFIG_ENV, ConfigError, read_table

HEALTH_ENV: Final = "SKELETONHUNTER_AGENT_HEALTH"
USAGE: Final = 2
MAX_ANSWER_BYTES: Final = 16 * 1024
# A flood of requests fills the queue within a millisecond; wait this long and try again.
AGAIN_S: Final = 0.002
# Far longer than any caller waits.
MAX_TIMEOUT_S: Final = 3_600.0
EPILOG: Final = """\
example:
  skeletonhunter agent health --config /etc/skeletonhunter/agent.toml

exit codes: 0 ready (with --live: alive), 1 not, or no answer, 2 wrong settings
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser with all options."""
    options = argparse.ArgumentParser(
        prog="skeletonhunter agent health",
        description="Ask an agent whether it is ready; print its answer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument(
        "--config", type=Path, metavar="FILE", help=f"TOML file, else {CONFIG_ENV}"
    )
    options.add_argument(
        "--health", metavar="ADDRESS", help="where it listens, as in [agent] health"
    )
    options.add_argument("--live", action="store_true", help="only whether its loop turns")
    options.add_argument("--timeout-s", type=_seconds, default=2.0, metavar="S", help="default 2")
    return options


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text!r}: more than 0, {MAX_TIMEOUT_S:.0f} at most")
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask once; return the exit code."""
    given = parser().parse_args(arguments)
    try:
        address = _address(given.health, os.environ, given.config)
    except (ConfigError, ValueError) as error:
        print(f"skeletonhunter agent health: {error}", file=sys.stderr)
        return USAGE
    try:
        code, body = ask(address, LIVE if given.live else READY, given.timeout_s)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        print(f"no answer at {address}: {reason}", file=sys.stderr)
        return 1
    print(body.strip())
    return 0 if code == 200 else 1


def ask(address: HealthAddress, path: str, timeout_s: float) -> tuple[int, str]:
    """Return status and body of the agent's answer.

    Raises
    ------
    OSError
        If nobody answers in time.
    ValueError
        If what is answered is no HTTP.
    """
    family = socket.AF_UNIX if address.path is not None else socket.AF_INET
    family = socket.AF_INET6 if ":" in address.host else family
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        _connect(connection, address, time.monotonic() + timeout_s)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
        answer = bytearray()
        while len(answer) < MAX_ANSWER_BYTES and (data := connection.recv(4_096)):
            answer += data
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 3 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError("the answer is no HTTP")
    return int(words[1]), body.decode("utf-8", "replace")


def _connect(connection: socket.socket, address: HealthAddress, end_s: float) -> None:
    where = address.path or (address.host, address.port)
    while True:
        try:
            connection.connect(where)
        except BlockingIOError:
            # A unix socket whose queue is full does not wait by itself.
            if time.monotonic() > end_s:
                raise
            time.sleep(AGAIN_S)
        else:
            return


def _address(
    flag: str | None, environment: Mapping[str, str], config: Path | None
) -> HealthAddress:
    text: Any = flag or environment.get(HEALTH_ENV) or read_table(config, "agent").get("health")
    if not text:
        raise ConfigError("[agent] health is not set: the agent listens nowhere")
    return parse_health(str(text))
