"""The log of what a lab did: one line of JSON per action, written at once."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from schemas.enums import Layer

TRUTH_FILE: Final = "truth.jsonl"
FILE_MODE: Final = 0o600
LAB_KIND: Final = "lab"

Action = Literal["inject", "heal", "up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One action.

    `inject` and `heal` are those of a fault. `down` and `up` are the turns of one that comes
    and goes, or, with kind `lab`, the end and the start of the lab itself.
    `at_ns` is wall-clock time since the epoch. `component_id` is the component
    to blame, `component_ids` all that may rightly be blamed.
    """

    at_ns: int
    action: Action
    fault_id: str
    kind: str
    target: str
    component_id: str
    component_ids: tuple[str, ...] = ()
    layer: Layer = Layer.UNKNOWN
    params: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the action as it stands in the file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> "Truth":
        """Return the action of a line; raises KeyError or ValueError on a foreign one."""
        return cls(
            at_ns=int(line["at_ns"]),
            action=line["action"],
            fault_id=line["fault_id"],
            kind=line["kind"],
            target=line["target"],
            component_id=line["component_id"],
            component_ids=tuple(line["component_ids"]),
            layer=Layer(line["layer"]),
            params=dict(line["params"]),
        )


class TruthLog:
    """Appends to a truth file; several processes may, since a line is one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, truth: Truth) -> None:
        """Write one line."""
        line = json.dumps(truth.as_dict(), ensure_ascii=False).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def read(self) -> list[Truth]:
        """Return all actions so far, in order."""
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [Truth.from_dict(json.loads(line)) for line in lines]


def lab_truth(action: Action, name: str) -> Truth:
    """Return the line that says that the lab itself came up or goes down."""
    return Truth(
        at_ns=time.time_ns(),
        action=action,
        fault_id="",
        kind=LAB_KIND,
        target=name,
        component_id="",
    )
