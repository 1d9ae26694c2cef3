"""Has PyTorch's Flight Recorder written to a file all the time; for training scripts.

    import torch_dump              # this file, copied beside the script or on PYTHONPATH
    torch_dump.start()             # after torch.distributed.init_process_group

It needs nothing but PyTorch, and does nothing where TORCH_FR_DUMP_TEMP_FILE names no path. The
path's folder is made if there is none. A dump is written when nothing has been launched or
finished for a second, again later with stacks, and while the job goes on so often that it takes two
thousandths of the time. Between, a file beside it (`.alive`) is touched: the dump still holds all.

A process that aborts, as gloo's does when it is sent more bytes than it expects, ends six seconds
later, so that its last dump has the operation in which it did. So does one that is sent SIGABRT. On
Linux, and where nothing else handles that signal.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import threading
import time
from typing import Any

CHECK_S = 0.5
# The handler is given the signal's number, and takes it for seconds.
LINGER_S = int(signal.SIGABRT)
# The kernel takes the handler away when it has called it, and leaves this flag.
SA_RESETHAND = 0x80000000
# Nothing launched and nothing finished in two checks: the job waits for something.
STILL_CHECKS = 2
# Stacks take seconds to find out, once: only of what has waited for long.
STACKS_AFTER_S = 10.0
# So often while it waits, so that the file's time tells for how long.
REPEAT_S = 60.0
# What dumps may take of a processor while the job goes on.
SHARE = 0.002
LEAST_S = 2.0
# And at least so often, or the recorder forgets what no dump holds.
MOST_S = 6.0
BASES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


class Recorder:
    """Writes the dumps of this process.

    Parameters
    ----------
    base
        Beginning of the path; the rank follows.

    Attributes
    ----------
    paused
        While it is set nothing is looked at and no dump is written.
    """

    def __init__(self, base: str, rank: int, bindings: Any) -> None:
        self.paused = False
        self.path = f"{base}{rank}"
        self._bindings = bindings
        self._status: bytes | None = None
        self._still = 0
        self._still_since = 0.0
        self._next_dump = 0.0
        self._dumped: bytes | None = None
        self._with_stacks = False
        self._said = False

    def check(self, now: float) -> None:
        """Look whether something happened, and write a dump if one is due.

        Parameters
        ----------
        now
            Seconds, by a clock that never goes back.
        """
        status = self._light()
        if status != self._status:
            if self._still >= STILL_CHECKS:
                # It goes on: what it does now is lost if the next dump is as far as in a wait.
                self._next_dump = min(self._next_dump, now + LEAST_S)
            self._status, self._still, self._still_since = status, 0, now
        else:
            self._still += 1
        waits = self._still >= STILL_CHECKS
        if not waits:
            self._with_stacks = False
        if now >= self._next_dump or (waits and self._dumped != status):
            self._write(now, status, stacks=False)
        elif waits and not self._with_stacks and now - self._still_since >= STACKS_AFTER_S:
            self._with_stacks = True
            self._write(now, status, stacks=True)
        elif self._dumped == status:
            _touch(self.path + ".alive")

    def try_check(self, now: float) -> None:
        """Do the same; a full disk is not the job's trouble, and said once on standard error."""
        if self.paused:
            return
        try:
            self.check(now)
        except OSError as error:
            if not self._said:
                self._said = True
                print(f"torch_dump: no dumps: {error}", file=sys.stderr, flush=True)

    def _write(self, now: float, status: bytes, *, stacks: bool) -> None:
        begin = time.thread_time()
        content = self._dump(stacks=stacks)
        took = time.thread_time() - begin
        _replace(self.path, content)
        # A state that was read before the dump: what happened between is in the dump.
        self._dumped = status
        waits = self._still >= STILL_CHECKS
        self._next_dump = now + (REPEAT_S if waits else min(MOST_S, max(LEAST_S, took / SHARE)))

    def _light(self) -> bytes:
        """Return how far each group came: a few hundred bytes, without any operation."""
        return _bytes(self._bindings["json"](includeCollectives=False))

    def _dump(self, *, stacks: bool) -> bytes:
        if stacks or self._with_stacks:
            pickle = self._bindings["pickle"]
            return _bytes(pickle(includeCollectives=True, includeStackTraces=True))
        return _bytes(self._bindings["json"](includeCollectives=True))


def start(base: str | None = None, rank: int | None = None) -> Recorder | None:
    """Begin to write dumps in a thread; return None where there is no path.

    Parameters
    ----------
    base
        Beginning of the path; default as the environment says.
    rank
        Default that of `torch.distributed`, or RANK.
    """
    base = base or next((os.environ[name] for name in BASES if os.environ.get(name)), None)
    if base is None:
        return None
    bindings = vars(importlib.import_module("torch._C._distributed_c10d"))
    if rank is None:
        distributed = importlib.import_module("torch.distributed")
        rank = int(distributed.get_rank() if distributed.is_initialized() else os.environ["RANK"])
    recorder = Recorder(base, rank, _of_backend(bindings))

    def run() -> None:
        while True:
            # A recorder that is taken down at the end is not the job's trouble.
            with contextlib.suppress(RuntimeError):
                recorder.try_check(time.monotonic())
            time.sleep(CHECK_S)

    linger()
    threading.Thread(target=run, name="torch_dump", daemon=True).start()
    return recorder


def linger() -> None:
    """Let a process that aborts live for some seconds more, unless something handles that.

    The C library's own `sleep` is the handler of SIGABRT: no Python may run in one, and POSIX lists
    it among the functions that may. What it is given is the signal's number, 6, as seconds. The
    other threads go on meanwhile. `abort` ends the process when the handler returns; where the
    signal was sent by `kill`, a thread that sees that the handler was called sends it again.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    found = _Action()
    library.sigaction(int(signal.SIGABRT), None, ctypes.byref(found))
    if found.handler:
        # Of faulthandler, say, which Python's `signal.getsignal` does not know.
        return
    sleep = ctypes.cast(library.sleep, ctypes.c_void_p)
    action = _Action(handler=sleep, flags=SA_RESETHAND)
    library.sigaction(int(signal.SIGABRT), ctypes.byref(action), None)

    def end() -> None:
        while True:
            time.sleep(CHECK_S)
            library.sigaction(int(signal.SIGABRT), None, ctypes.byref(found))
            # Who sets the default by hand leaves no such flag.
            if not found.handler and found.flags & SA_RESETHAND:
                time.sleep(LINGER_S)
                os.kill(os.getpid(), signal.SIGABRT)

    threading.Thread(target=end, name="torch_dump_abort", daemon=True).start()
    # A child that is forked, as one that loads data, has no such thread, and no dump to wait for.
    os.register_at_fork(after_in_child=lambda: _default(library, sleep.value))


def _default(library: ctypes.CDLL, handler: int | None) -> None:
    """Let SIGABRT do what it does by itself, if this is what handles it."""
    found = _Action()
    library.sigaction(int(signal.SIGABRT), None, ctypes.byref(found))
    if found.handler == handler:
        library.sigaction(int(signal.SIGABRT), ctypes.byref(_Action()), None)


class _Action(ctypes.Structure):
    """What glibc and musl call `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_uint),
        ("restorer", ctypes.c_void_p),
    )


def _of_backend(bindings: dict[str, Any]) -> dict[str, Any]:
    """Return the functions that read the recorder of this job's backend."""
    distributed = importlib.import_module("torch.distributed")
    backend = distributed.get_backend() if distributed.is_initialized() else ""
    name = "_dump_nccl_trace" if "nccl" in backend else "_dump_fr_trace"
    found = {"pickle": bindings.get(name), "json": bindings.get(f"{name}_json")}
    if None in found.values():
        raise RuntimeError(f"this PyTorch has no {name}_json: its recorder cannot be read")
    return found


def _bytes(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def _replace(path: str, content: bytes) -> None:
    """Write a file so that a reader sees all of it or the one before."""
    temporary = f"{path}.{os.getpid()}.tmp"
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
    _touch(path + ".alive")


def _touch(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"alive\n")
