"""A process that is to end ends: what hangs on the way is left behind.

Kafka's clients wait without limit for a broker that takes connections and answers nothing, such
as on a frozen machine: in `Consumer.close` while a commit is under way (measured: longer than 27
minutes), in a commit that is waited for. Nothing is lost by leaving them: what they would have told
the broker, it finds out by itself when the session times out, as after a crash.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

# In order a process ends within a second or two; Kubernetes and our units kill after thirty.
LIMIT_S: Final = 20.0
EXIT_CODE: Final = 3
# Once the interpreter itself ends, none of its threads runs any more, while clients that nobody
# closed are still destroyed, and may hang. A timer in C then ends the process, with its own code.
INTERPRETER_S: Final = 5.0
INTERPRETER_CODE: Final = 1


@contextmanager
def ending(limit_s: float = LIMIT_S) -> Iterator[None]:
    """End this process where what is done inside has not ended after so long.

    Standard error then says where each thread was.
    """
    done = threading.Event()

    def watch() -> None:
        if not done.wait(limit_s):
            _leave(limit_s)

    threading.Thread(target=watch, name="ending", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def end_within_after(signals: Collection[int], limit_s: float = LIMIT_S) -> None:
    """Let one of these signals begin that time, also while the main thread hangs in a library.

    Python calls a signal's handler in the main thread, between two of its steps; the number of the
    signal is written to the wakeup pipe at once. Each signal needs a handler all the same.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait() -> None:
        while os.read(reader, 1)[0] not in signals:
            pass
        time.sleep(limit_s)
        _leave(limit_s)

    threading.Thread(target=wait, name="ending", daemon=True).start()


def end_interpreter_within(limit_s: float = LIMIT_S + INTERPRETER_S) -> None:
    """End this process where it, or the end of its interpreter, takes longer than that."""
    faulthandler.dump_traceback_later(limit_s, exit=True)


def _leave(limit_s: float) -> None:
    print(f"not ended within {limit_s:.0f} s, left behind:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_CODE)
