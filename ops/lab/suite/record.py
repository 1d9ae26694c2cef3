"""`lab record-suite`: labelled faults in a lab, one after the other, recorded with their truth."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ops.lab.errors import LabError, LabUsageError
from ops.lab.kind import lab_kind
from ops.lab.lab import Lab
from ops.lab.suite.cases import Case
from ops.lab.suite.places import placed, places
from ops.lab.suite.recorded import RECORDED
from ops.lab.suite.suite import Say, lab_beside, pipeline
from ops.log.reading import now_ms
from ops.log.timespan import BEGINNING, Bound
from ops.recording.diagnosis import INPUTS
from ops.recording.labelled import ARCHIVE, pack
from ops.recording.labels import Label, Labels
from ops.recording.recorder import Recorder, Request
from ops.running.pipeline import SKELETON
from schemas.units import SECOND_NS
from schemas.version import VERSION

# A window of production (30 s) is judged against five before it, and closes some seconds late.
HEALTH_S: Final = 200.0
# What was open is resolved, and two windows of health are between two faults.
REST_S: Final = 60.0
TURN_S: Final = 0.2
# The last windows close, and their records arrive.
TAIL_S: Final = 45.0

Wait = Callable[[float], None]


def record_suite(
    kind: str,
    out: Path,
    *,
    say: Say,
    bootstrap: str | None = None,
    recorded: Mapping[str, Sequence[Case]] = RECORDED,
    health_s: float = HEALTH_S,
    rest_s: float = REST_S,
    tail_s: float = TAIL_S,
) -> list[Path]:
    """Record the faults of a lab of that kind, a recording and its truth for each group.

    Nothing decides on them meanwhile: of the pipeline only the skeleton job runs, since agents
    probe what its lists say. What this machine cannot do is left out, and the truth says so.

    Raises
    ------
    FileExistsError
        If a recording of that name is there already.
    LabError, TimeoutError, ChildDiedError
        If the lab does not come up, or a process of it ends.
    """
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for group, cases in recorded.items():
        name = f"{kind}-{group}"
        if (out / f"{name}{ARCHIVE}").exists():
            raise FileExistsError(f"{out / name}{ARCHIVE} is there already")
        mine = [case for case in cases if case.in_lab(kind)]
        patience = lab_kind(kind).patience
        whole_s = health_s + sum(case.timeout_s * patience + rest_s for case in mine) + tail_s
        say(f"{name}: {len(mine)} cases in {whole_s / 60:.0f} minutes")
        with (
            pipeline(bootstrap, say, tables={}, processes=(SKELETON,)) as started,
            lab_beside(started, kind, say) as (lab, check),
        ):

            def wait(seconds: float, check: Callable[[], None] = check) -> None:
                deadline = time.monotonic() + seconds
                while (left_s := deadline - time.monotonic()) > 0:
                    check()
                    time.sleep(min(TURN_S, left_s))

            labels = _put_in(
                lab, name, mine, say, wait, health_s=health_s, rest_s=rest_s, tail_s=tail_s
            )
            wait(tail_s)
            written.append(_keep(lab, labels, out))
        say(f"{written[-1]}: {written[-1].stat().st_size / 1e6:.1f} MB")
    return written


def _put_in(
    lab: Lab,
    name: str,
    cases: Sequence[Case],
    say: Say,
    wait: Wait,
    *,
    health_s: float,
    rest_s: float,
    tail_s: float,
) -> Labels:
    """Put cases in, hold and heal each, at places that look alike; return what was done when."""
    begin_ns = time.time_ns()
    faults: list[Label] = []
    confounders: list[Label] = []
    left_out: list[str] = []
    names = places(lab.shape)
    say(f"{health_s:.0f} s of health first")
    wait(health_s)
    for number, case in enumerate(cases):
        here = placed(case, names[number % len(names)])
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        try:
            truth = lab.fault(here.kind, here.target, **here.params)
        except (LabError, LabUsageError) as error:
            say(f"{here.name}: left out, {error}")
            left_out.append(f"{here.name}: {error}")
            continue
        held_s = here.timeout_s * lab.kind.patience
        say(f"{here.name} at {here.target} for {held_s:.0f} s, load {load:.1f}")
        wait(held_s)
        (healed,) = lab.heal()
        label = labelled(here, truth.at_ns - begin_ns, healed.at_ns - begin_ns, load)
        (confounders if here.excused else faults).append(label)
        wait(rest_s)
    return Labels(
        recording=name,
        start_ns=begin_ns,
        duration_s=round((time.time_ns() - begin_ns) / SECOND_NS + tail_s, 3),
        faults=tuple(faults),
        confounders=tuple(confounders),
        left_out=tuple(left_out),
    )


def labelled(case: Case, from_ns: int, to_ns: int, load: float) -> Label:
    """Return the label of a case that was in force for that time after the beginning."""
    return Label(
        name=case.name,
        # A confounder has no right verdict; it is called what it was.
        kind=case.kind if case.excused else case.fault_kinds[0],
        also_kinds=() if case.excused else case.fault_kinds[1:],
        layer=case.layer,
        from_s=round(from_ns / SECOND_NS, 3),
        to_s=round(to_ns / SECOND_NS, 3),
        components=case.component_ids[:1],
        also_right=case.component_ids[1:],
        hard=case.hard,
        load=round(load, 2),
    )


def _keep(lab: Lab, labels: Labels, out: Path) -> Path:
    """Write recording and truth."""
    # xz finds more in what is not deflated already.
    request = Request(topics=INPUTS, start=BEGINNING, to=Bound("time", now_ms()), codec="null")
    archive = out / f"{labels.recording}{ARCHIVE}"
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-recorded-") as scratch:
        folder = Path(scratch) / labels.recording
        Recorder(lab.config.settings, request, VERSION).run(folder, lambda: False)
        pack(folder, archive)
    labels.write(out)
    return archive
