"""A process that is to end ends: what hangs on the way is left behind.

Kafka's clients wait without limit for a broker that takes connections and answers nothing, such
as on a frozen machine: in `Consumer.close` while a commit is under way (measured: longer than 27
minutes), in a commit that is waited for. Nothing is lost by leaving them: what they would have told
the broker, it finds out by itself when the session times out, as after a crash.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

# In order a process ends within a second or two; Kubernetes and our units kill after thirty.
LIMIT_S: Final = 20.0
EXIT_CODE: Final = 3
# What Python itself ends with where it cannot write the last of its output.
UNWRITTEN_CODE: Final = 120
# As shells say of what Ctrl-C has ended.
INTERRUPTED_CODE: Final = 130


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


def end_with(main: Callable[[], object]) -> NoReturn:
    """Run `main`, and end this process with what it returns, or with the code of its error.

    Neither Python's end nor that of C runs. Clients of Kafka that nobody closed have threads still,
    also after Python has forgotten the clients, and C takes OpenSSL's memory away under them: of
    processes whose broker had an untrusted certificate one in a hundred crashed (SIGSEGV, SIGABRT).
    """
    code = 1
    try:
        code = _code_of(main)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            # None where it was closed before the program began.
            if stream is not None and not stream.closed:
                try:
                    stream.flush()
                except OSError:
                    code = code or UNWRITTEN_CODE
    finally:
        os._exit(code & 0xFF)


def _code_of(main: Callable[[], object]) -> int:
    try:
        code = main()
    except SystemExit as asked:
        code = asked.code
    except KeyboardInterrupt:
        return INTERRUPTED_CODE
    except BaseException:  # noqa: BLE001 - printed as Python does, and it ends the process
        sys.excepthook(*sys.exc_info())
        return 1
    if isinstance(code, int):
        return code
    if code is not None:
        print(code, file=sys.stderr)
    return int(code is not None)


def _leave(limit_s: float) -> None:
    print(f"not ended within {limit_s:.0f} s, left behind:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(EXIT_CODE)
