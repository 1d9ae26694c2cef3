"""The batch source alone: real consumer, outbox, Faust channel and agent, and nobody who judges.

`python -m ops.bench.throughput.source` runs like a worker whose engine only notes how far it is.
"""

import argparse
import sys
from unittest.mock import patch

from ops.bench.rig.load import CLUSTER
from schemas.connection import settings_from_table
from schemas.eventlog import setup_logging
from streams import worker
from streams.config import WorkerConfig
from streams.edge.engine import Batch, Engine


class Counting(Engine):
    """Takes batches as the engine does, and lets their rounds fall."""

    def _process(self, batch: Batch) -> None:
        for partition, messages in batch.messages.items():
            if partition in self._sessions:
                session = self._sessions[partition]
                session.next_offset = int(messages[-1].offset() or 0) + 1
                # Nothing was sent that would have to be confirmed.
                mark = session.mark()
                if mark is not None:
                    mark.settle()
        self._moved()
        self.commit_due()


def main() -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.throughput.source")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--group", required=True)
    options = parser.parse_args()
    setup_logging(as_json=True)
    table = {"cluster": CLUSTER, "topic.prefix": options.prefix}
    settings = settings_from_table(options.bootstrap, table)
    # The worker as it is, but for what takes the batches.
    with patch.object(worker, "Engine", Counting):
        return worker.run_worker(settings, WorkerConfig(group=options.group, commit_s=0.05))


if __name__ == "__main__":
    sys.exit(main())
