"""`python -m probers.overlay`: the child. Reads a request on stdin, writes the answer to stdout."""

import os
import signal
import sys
from typing import Final

from probers.overlay.reading import read
from probers.overlay.wire import pack_answer, unpack_request

# Whatever is read here, the probes of the host come first.
NICENESS: Final = 10
# After the commands' own time is over, the agent waits no longer for the child than this.
GRACE_S: Final = 3


def main() -> int:
    """Read the tables once."""
    os.nice(NICENESS)
    request = unpack_request(sys.stdin.buffer.read())
    # The child of an agent that is gone ends all the same.
    signal.alarm(int(request.timeout_s) + GRACE_S)
    sys.stdout.buffer.write(pack_answer(read(request)))
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
