"""A peer: a Faust agent as its documentation shows it, on a topic of one message per probe.

Without Tables: windows are kept in memory, which is the quickest that Faust can do.
`--rounds`: no windows, only messages: Faust's own consumer beside the batch source.
"""

import argparse
import asyncio
import sys
from typing import Any, Final

import faust

from ops.bench.throughput.peer_windows import TOPIC, WINDOWS, Windows, decode
from schemas.topics import PROBE_ROUND

COMMIT_S: Final = 0.25


def main() -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.peer_faust")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--rounds", action="store_true")
    options = parser.parse_args()
    app = faust.App(
        options.prefix + options.group,
        broker=f"kafka://{options.bootstrap}",
        broker_commit_interval=COMMIT_S,
        consumer_auto_offset_reset="earliest",
        store="memory://",
        # The bench makes the topics.
        topic_allow_declare=False,
        topic_disable_leader=True,
        stream_wait_empty=False,
        web_enabled=False,
    )

    def topic(name: str) -> Any:
        return app.topic(
            options.prefix + name, key_type=bytes, value_type=bytes, key_serializer="raw",
            value_serializer="raw",
        )  # fmt: skip

    windows, out = Windows(), topic(WINDOWS)

    async def probes(stream: Any) -> None:
        async for value in stream:
            probe = decode(value)
            path = f"{probe['src']}>{probe['dst']}"
            for window in windows.add_probe(path, probe["sent_ns"] // 10**6, probe["rtt_ns"]):
                await out.send(value=window)

    async def rounds(stream: Any) -> None:
        async for _ in stream:
            pass

    if options.rounds:
        app.agent(topic(PROBE_ROUND.name))(rounds)
    else:
        app.agent(topic(TOPIC))(probes)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = faust.Worker(
        app, loglevel="ERROR", quiet=True, override_logging=False, redirect_stdouts=False,
        stdout=sys.stderr, loop=loop,
    )  # fmt: skip
    worker.spinner = None
    worker.execute_from_commandline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
