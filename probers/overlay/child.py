"""Starts, polls and ends the child process that reads the tables; the agent's side.

It is a process and not a thread: a dump of tens of thousands of flows takes seconds of Python and
tens of megabytes. A thread would take the time from the probing loop and never give the memory
back. Request and answer are in anonymous files, so no pipe can be full and nothing blocks.
"""

import contextlib
import os
import signal
import sys
from typing import Final

from probers.overlay.wire import (
    MAX_ANSWER_BYTES,
    Answer,
    Request,
    pack_request,
    unpack_answer,
)

# After the commands' own time: for Python to start and to judge what was read.
GRACE_NS: Final = 5 * 10**9


class TableChild:
    """One reading at a time; no method waits."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._answer = -1
        self._end_ns = 0
        self._killed = False

    @property
    def busy(self) -> bool:
        """Whether a reading is under way."""
        return self._pid is not None

    def start(self, request: Request, now_ns: int) -> None:
        """Begin a reading.

        Raises
        ------
        OSError
            If there is no process to be had.
        """
        asked = os.memfd_create("request")
        answer = os.memfd_create("answer")
        try:
            os.write(asked, pack_request(request))
            os.lseek(asked, 0, os.SEEK_SET)
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "probers.overlay"],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, asked, 0), (os.POSIX_SPAWN_DUP2, answer, 1)],
                # With all it starts, so that all can be ended.
                setpgroup=0,
            )
        except OSError:
            os.close(answer)
            raise
        finally:
            os.close(asked)
        self._answer = answer
        self._killed = False
        self._end_ns = now_ns + int(request.timeout_s * 10**9) + GRACE_NS

    def poll(self, now_ns: int) -> Answer | None:
        """Return the answer; None: not yet."""
        if self._pid is None:
            return None
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            if now_ns > self._end_ns:
                self._kill()
            return None
        self._pid = None
        code = os.waitstatus_to_exitcode(status)
        data = b"" if code else os.pread(self._answer, MAX_ANSWER_BYTES + 1, 0)
        os.close(self._answer)
        if self._killed:
            return Answer(troubles=["no answer in time"])
        answer = None if code else unpack_answer(data)
        return answer or Answer(troubles=[f"the reading process ended with {code}"])

    def close(self) -> None:
        """End what is under way."""
        if self._pid is not None:
            self._kill()
            os.waitpid(self._pid, 0)
            os.close(self._answer)
            self._pid = None

    def _kill(self) -> None:
        self._killed = True
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
