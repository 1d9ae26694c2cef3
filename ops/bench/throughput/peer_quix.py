"""A peer: Quix Streams with its own tumbling windows over a topic of one message per probe.

Runs in an environment of its own, `make .venv-bench/.installed`: Quix Streams pins an older client
than ours. Nothing but Quix Streams, fastavro and `peer_windows` is imported. It is given what suits
it: messages keyed by path, so that nothing is partitioned anew, and no changelog topics.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from quixstreams import Application

from ops.bench.throughput.peer_windows import (
    LATENESS_MS,
    TOPIC,
    WINDOW_MS,
    WINDOWS,
    decode,
    statistics,
)

COMMIT_S: Final = 0.5


def main() -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.peer_quix")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--state", type=Path, required=True)
    options = parser.parse_args()
    app = Application(
        broker_address=options.bootstrap,
        consumer_group=options.prefix + options.group,
        auto_offset_reset="earliest",
        commit_interval=COMMIT_S,
        state_dir=options.state,
        auto_create_topics=False,
        use_changelog_topics=False,
        loglevel="WARNING",
    )
    probes = app.topic(options.prefix + TOPIC, key_deserializer="str", value_deserializer="bytes")
    out = app.topic(options.prefix + WINDOWS, value_serializer="json")

    def trip(value: bytes) -> dict[str, Any]:
        return {"rtt_ns": decode(value)["rtt_ns"]}

    def said(window: dict[str, Any]) -> dict[str, Any]:
        trips = [one["rtt_ns"] for one in window["value"]]
        return {"start": window["start"], **statistics(trips)}

    frame = app.dataframe(probes).apply(trip)
    frame = frame.tumbling_window(duration_ms=WINDOW_MS, grace_ms=LATENESS_MS).collect().final()
    frame.apply(said).to_topic(out)
    app.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
