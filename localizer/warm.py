"""Compiles the kernels of localizer and hang watcher before they are needed.

`python -m localizer.warm`, or at a start. Compiling takes half a minute, once after an
installation: meanwhile nothing is decided. Later starts read the machine code from disk, in about a
second.
"""

import time

from localizer.edge.batches import NetworkReader, collective_reader
from localizer.inference import search
from schemas.codec import Codec


def main() -> None:
    """Compile the kernels, and print how long it took."""
    began = time.monotonic()
    codec = Codec()
    NetworkReader(codec, "none").warm()
    search.warm()
    collective_reader(codec).warm()
    print(f"kernels of the localizer: ready after {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
