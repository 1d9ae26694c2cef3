"""Labelled recordings: what `diagnose` makes of each, against the truth that lies beside it.

A folder holds for each recording `NAME` its truth `NAME.truth.json`, and the recording itself as
`NAME.tar.xz` or as a folder `NAME`.
"""

import lzma
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arena.faults.truth import Verdict, verdicts_of
from arena.scoring import Case, Matching, match
from arena.sealed_worlds import counted
from localizer.config import LocalizerConfig
from ops.recording.detection_process import LostProcessError
from ops.recording.diagnosis import BESIDE_ROUNDS, diagnose
from ops.recording.labels import SUFFIX, Labels
from ops.recording.source import Source
from schemas.units import SECOND_NS
from streams.config import DetectionConfig

ARCHIVE: Final = ".tar.xz"
# A file of some KB may claim to hold anything.
MOST_BYTES: Final = 4 << 30

Say = Callable[[str], None]


# What reading a recording raises that is packed or damaged, or too large for this machine.
UNREADABLE: Final = (
    OSError, EOFError, ValueError, tarfile.TarError, lzma.LZMAError, LostProcessError,
)  # fmt: skip


class LabelledError(ValueError):
    """A folder that holds no labelled recordings, or damaged ones; the message says which."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One recording: its truth, what was said of it, and which answers what."""

    labels: Labels
    case: Case
    matching: Matching


def judge_folder(
    folder: Path, detection: DetectionConfig, localizer: LocalizerConfig, say: Say
) -> Iterator[Judged]:
    """Diagnose all labelled recordings of a folder, in the order of their names.

    Raises
    ------
    LabelledError
        If there is none, or one cannot be read.
    """
    truths = sorted(folder.glob(f"*{SUFFIX}"))
    if not truths:
        raise LabelledError(f"{folder} holds no {SUFFIX[1:]} of a recording")
    for path in truths:
        yield judge(path, detection, localizer, say)


def judge(
    path: Path, detection: DetectionConfig, localizer: LocalizerConfig, say: Say = lambda _: None
) -> Judged:
    """Diagnose the recording that lies beside a truth.

    Raises
    ------
    LabelledError
        If one of the two cannot be read.
    """
    try:
        labels = Labels.read(path)
        say(f"{labels.recording}: {len(labels.faults)} faults in {labels.duration_s:.0f} s")
        with _opened(path.parent, path.name.removesuffix(SUFFIX)) as source:
            core = localizer.core(source.manifest.cluster)
            found = diagnose(source, detection, core, lambda: False, lambda _: None)
    except UNREADABLE as error:
        raise LabelledError(f"{path}: {error}") from error
    damage = next(iter(source.damages), found.damage)
    if damage is not None:
        raise LabelledError(f"{path}: {damage}")
    return judged(labels, verdicts_of(found.events), probes=found.results)


def judged(labels: Labels, verdicts: list[Verdict], *, probes: int = 0) -> Judged:
    """Return which verdicts answer which faults; those that page nobody are false of none."""
    faults = labels.true_faults()
    case = Case(
        name=labels.recording,
        faults=faults,
        verdicts=counted(faults, verdicts),
        duration_ns=round(labels.duration_s * SECOND_NS),
        probes=probes,
    )
    return Judged(labels, case, match(case.faults, case.verdicts))


def pack(recording: Path, archive: Path) -> None:
    """Put a recording's folder into an archive, as small as it gets."""
    with (
        lzma.open(archive, "wb", preset=lzma.PRESET_EXTREME | 9) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(recording.iterdir()):
            tar.add(path, f"{recording.name}/{path.name}", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[Source]:
    plain, archive = folder / name, folder / f"{name}{ARCHIVE}"
    if plain.is_dir():
        with Source(plain, BESIDE_ROUNDS) as source:
            yield source
        return
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-labelled-") as scratch:
        left = MOST_BYTES
        with tarfile.open(archive, "r:xz") as tar:
            for member in tar:
                left -= member.size
                if left < 0:
                    raise ValueError(f"{archive} holds more than {MOST_BYTES} bytes")
                tar.extract(member, scratch, filter="data")
        with Source(Path(scratch) / name, BESIDE_ROUNDS) as source:
            yield source
