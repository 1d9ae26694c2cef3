"""A diagnoser in another process: one JSON line per window in, one JSON line of accusations out."""

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation, PluginError
from schemas.records import Component, FlowTable

# A window of a large cluster takes the slowest baseline a few seconds.
TIMEOUT_S: Final = 60.0
# A line of accusations; ten thousand of them fit.
MAX_LINE_BYTES: Final = 1 << 20
CHUNK: Final = 1 << 16
MAX_NAMED: Final = 10_000
TOLD_BYTES: Final = 2_000
GRACE_S: Final = 2.0
KEYS: Final = {"component_id", "kind", "score", "also"}


class Command:
    """A command as a diagnoser: started at once, ended by `close`.

    Parameters
    ----------
    command
        Program and arguments; no shell.
    timeout_s
        How long it may take over a window.
    grace_s
        How long it may take to end by itself after its input, and again after SIGTERM.

    Raises
    ------
    PluginError
        From here, if it cannot be started; from `observe`, if it dies, answers too late or too
        much, or something that is no list of accusations.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str | None = None,
        timeout_s: float = TIMEOUT_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self.name = name or os.path.basename(command[0])
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._windows = 0
        self._rest = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        try:
            self._process = subprocess.Popen(
                list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            self._errors.close()
            raise PluginError(f"{self.name}: cannot start {command[0]!r}: {error}") from error
        assert self._process.stdin is not None  # noqa: S101  (asked for above)
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)

    def observe(self, window: Window) -> list[Accusation]:
        """Send a window, wait for the answer."""
        line = json.dumps(as_json(window, self._windows)).encode() + b"\n"
        self._windows += 1
        return self._accusations(self._exchange(line))

    def close(self) -> None:
        """End the process: its input ends, then it is terminated, then killed."""
        # It may have gone already, with something unread.
        with contextlib.suppress(OSError):
            self._stdin.close()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            try:
                self._process.wait(self._grace_s)
                break
            except subprocess.TimeoutExpired:
                continue
        self._stdout.close()
        self._errors.close()

    def _exchange(self, line: bytes) -> bytes:
        """Write a line and read one, whichever the other side is ready for."""
        deadline = monotonic() + self._timeout_s
        to_write = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stdin, selectors.EVENT_WRITE)
            while to_write or b"\n" not in self._rest:
                left_s = deadline - monotonic()
                if left_s <= 0:
                    raise self._error(f"no answer within {self._timeout_s:g} s")
                for key, _ in selector.select(left_s):
                    if key.fileobj is self._stdout:
                        self._read()
                        continue
                    to_write = to_write[self._write(to_write) :]
                    if not to_write:
                        selector.unregister(self._stdin)
        answer, _, self._rest = self._rest.partition(b"\n")
        if self._rest:
            raise self._error("more than one line for one window")
        return answer

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._stdin.fileno(), data[:CHUNK])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise self._error(self._end()) from None

    def _read(self) -> None:
        data = os.read(self._stdout.fileno(), CHUNK)
        if not data:
            raise self._error(self._end())
        self._rest += data
        if len(self._rest) > MAX_LINE_BYTES:
            raise self._error(f"an answer of more than {MAX_LINE_BYTES} bytes")

    def _end(self) -> str:
        try:
            code = self._process.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            return "closed its output without an answer"
        return f"ended with exit code {code} without an answer"

    def _error(self, what: str) -> PluginError:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TOLD_BYTES))
        told = self._errors.read().decode("utf-8", "replace").strip()
        where = f"{self.name}, window {self._windows - 1}: {what}"
        return PluginError(f"{where}; it said on stderr: {told}" if told else where)

    def _accusations(self, answer: bytes) -> list[Accusation]:
        try:
            rows = json.loads(answer)
        except ValueError:
            raise self._error(f"no JSON: {answer[:200]!r}") from None
        if not isinstance(rows, list) or len(rows) > MAX_NAMED:
            raise self._error(f"no list of at most {MAX_NAMED} accusations: {answer[:200]!r}")
        try:
            return [accusation(row) for row in rows]
        except ValueError as error:
            raise self._error(str(error)) from None


def accusation(row: Any) -> Accusation:
    """Return the accusation that a JSON object stands for.

    Raises
    ------
    ValueError
        If it is none.
    """
    if isinstance(row, dict) and set(row) <= KEYS:
        component, kind = row.get("component_id"), row.get("kind")
        score, also = row.get("score", 1.0), row.get("also", [])
        named = [component, kind, *also] if isinstance(also, list) else [None]
        if isinstance(score, int | float) and all(isinstance(name, str) for name in named):
            return Accusation(
                component_id=str(component), kind=str(kind), score=float(score), also=tuple(also)
            )
    raise ValueError(
        f"no accusation: {json.dumps(row)[:200]}; wanted: component_id, kind, and if wanted "
        "score (a number) and also (a list of component ids)"
    )


def as_json(window: Window, number: int) -> dict[str, Any]:
    """Return a window as it goes to a command."""
    quartiles = window.quartiles_ns.tolist()
    return {
        "window": number,
        "begin_ns": window.begin_ns,
        "end_ns": window.end_ns,
        "flows": [
            {
                "src": src, "dst": dst, "flow": flow,
                "sent": int(window.sent[n]), "lost": int(window.lost[n]),
                "rtt_ns": None if window.sent[n] == window.lost[n] else quartiles[n],
                "components": list(window.components[n]),
            }
            for n, (src, dst, flow) in enumerate(window.flows)
        ],
        "topology": [_component(c) for c in window.new_components],
        "flow_tables": [_table(t) for t in window.new_tables],
    }  # fmt: skip


def _component(c: Component) -> dict[str, Any]:
    return {
        "component_id": c.component_id, "kind": c.kind, "layer": c.layer, "a": c.a, "b": c.b,
        "parent": c.parent, "tier": c.tier,
    }  # fmt: skip


def _table(t: FlowTable) -> dict[str, Any]:
    return {
        "host_id": t.host_id,
        "captured_at_us": t.captured_at,
        "entries": [
            {"node": e.node, "dst": e.dst, "next_hop": e.next_hop, "offloaded": e.offloaded}
            for e in t.entries
        ],
    }
