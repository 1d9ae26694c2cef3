"""What really happened during a recording: `NAME.truth.json` beside the recording `NAME`.

Times are seconds after `start_ns`, the beginning of what is judged. A fault answers to the names
of `components` and `also_right` (what no observer could tell from them), and to the kinds `kind`
and `also_kinds`. A confounder looks like a fault and is none: nobody may be paged for it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from arena.faults.truth import TrueFault
from schemas.enums import Layer
from schemas.process.files import parse_json, read_file
from schemas.units import SECOND_NS

SUFFIX: Final = ".truth.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One fault, or one confounder.

    `name` says in words what it was. `hard`: everything of somebody's is lost. `load`: processes
    that wanted to run, for each processor of the machine that was recorded (one minute's mean);
    None: nobody looked.
    """

    kind: str
    name: str = ""
    layer: Layer = Layer.UNKNOWN
    from_s: float
    to_s: float | None
    components: tuple[str, ...]
    also_right: tuple[str, ...] = ()
    also_kinds: tuple[str, ...] = ()
    hard: bool = False
    load: float | None = None

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Self:
        """Return the label of a JSON object; raises KeyError, TypeError, ValueError."""
        to_s, load = said.get("to_s"), said.get("load")
        if not said["components"]:
            raise ValueError("a fault without a component")
        if to_s is not None and float(to_s) < float(said["from_s"]):
            raise ValueError(f"a fault that ends at {to_s} s, before it begins")
        return cls(
            kind=str(said["kind"]),
            name=str(said.get("name", "")),
            layer=Layer(str(said.get("layer", Layer.UNKNOWN.value)).upper()),
            from_s=float(said["from_s"]),
            to_s=None if to_s is None else float(to_s),
            components=tuple(map(str, said["components"])),
            also_right=tuple(map(str, said.get("also_right", ()))),
            also_kinds=tuple(map(str, said.get("also_kinds", ()))),
            hard=bool(said.get("hard", False)),
            load=None if load is None else float(load),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The truth of one recording.

    `left_out` says which faults were to be there and are not, and why: the machine could not.
    """

    recording: str
    start_ns: int
    duration_s: float
    faults: tuple[Label, ...]
    confounders: tuple[Label, ...] = ()
    left_out: tuple[str, ...] = ()

    def true_faults(self) -> tuple[TrueFault, ...]:
        """Return the faults as scores compare them with verdicts."""
        return tuple(
            TrueFault(
                fault_id=label.name or f"{self.recording}-{number}",
                kind=label.kind,
                also_kinds=frozenset(label.also_kinds),
                layer=label.layer,
                components=frozenset((*label.components, *label.also_right)),
                begin_ns=self.start_ns + round(label.from_s * SECOND_NS),
                end_ns=None
                if label.to_s is None
                else self.start_ns + round(label.to_s * SECOND_NS),
                hard=label.hard,
            )
            for number, label in enumerate(self.faults)
        )

    def write(self, folder: Path) -> Path:
        """Write the file; return its path."""
        path = folder / f"{self.recording}{SUFFIX}"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what a file says.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it is no such file; the message says why.
        """
        said = parse_json(read_file(path))
        try:
            return cls(
                recording=str(said["recording"]),
                start_ns=int(said["start_ns"]),
                duration_s=float(said["duration_s"]),
                faults=tuple(map(Label.from_dict, said["faults"])),
                confounders=tuple(map(Label.from_dict, said.get("confounders", ()))),
                left_out=tuple(map(str, said.get("left_out", ()))),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: no truth of a recording: {error!r}") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
