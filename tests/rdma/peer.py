"""A responder in a process of its own: answers until its standard input is closed."""

import json
import select
import sys

from probers.clock import SystemClock
from probers.transports.rdma.transport import RdmaTransport
from tests.rdma.pairs import FLOWS, settings


def main() -> None:
    """Answer probes on one RNIC."""
    responder = RdmaTransport(SystemClock(), settings(int(sys.argv[1])), flows=FLOWS)
    told = {"address": responder.address, "port": responder.port, "qkey": responder.qkey}
    print(json.dumps(told), flush=True)
    while True:
        ready, _, _ = select.select([responder.fileno(), sys.stdin], [], [], 1.0)
        if sys.stdin in ready:
            break
        responder.poll()
    responder.close()


if __name__ == "__main__":
    main()
