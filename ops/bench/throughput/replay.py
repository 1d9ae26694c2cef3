"""How long a recorded day takes to its verdicts, told from shorter ones."""

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arena.fabric import FabricShape
from ops.bench.rig.report import Figure
from ops.bench.throughput.figures import MEGA, Say, row
from ops.bench.throughput.recording import DAY, record, scenario
from ops.bench.throughput.rig import Rig

BILLION: Final = 1e9
# Seconds of the day that are replayed: what does not grow with the day is told from what does.
SHORT_S: Final = 600
LONG_S: Final = 1_800
TIMEOUT_S: Final = 1_200.0
# `replay` and `diagnose` end so when there is a verdict, as there must be.
FOUND: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """A command on a recording: seconds by the clock, and of a core, its children's as well."""

    seconds: float
    cpu_s: float


def timed(bootstrap: str, *arguments: str) -> Took:
    """Run a command of `skeletonhunter` that must find a fault; raises RuntimeError if it fails."""
    command = [str(Path(sys.executable).with_name("skeletonhunter")), *arguments]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*command, *(["--bootstrap", bootstrap] if bootstrap else [])], capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != FOUND:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(seconds=seconds, cpu_s=cpu_s)


def extrapolated_s(short: tuple[int, float], long: tuple[int, float], results: float) -> float:
    """Return the seconds that so many results take, on the line through two that were measured.

    Parameters
    ----------
    short, long
        Results and seconds.

    >>> extrapolated_s((100, 11.0), (1_100, 21.0), 10_100)
    111.0
    """
    # The clock may have been kinder to the long one: then nothing is known of what is fixed.
    if long[1] <= short[1]:
        return long[1] / long[0] * results
    slope = (long[1] - short[1]) / (long[0] - short[0])
    return long[1] + slope * (results - long[0])


def replay(
    made: Rig,
    runs: int,
    say: Say,
    seconds: tuple[int, int] = (SHORT_S, LONG_S),
    fabric: FabricShape = DAY,
) -> list[Figure]:
    """Replay two recordings through worker and localizer; diagnose them without a broker, too."""
    samples: dict[str, list[float]] = {"replay": [], "diagnose": []}
    per_million: dict[str, list[float]] = {"replay": [], "diagnose": []}
    recordings = []
    for lasts_s in seconds:
        folder = made.folder / f"recording-{lasts_s}"
        recordings.append((folder, record(folder, scenario(lasts_s, fabric))))
        say(f"recorded: {recordings[-1][1]:,} results of {lasts_s} s")
    for turn in range(runs):
        times: dict[str, list[tuple[int, float]]] = {"replay": [], "diagnose": []}
        for folder, results in recordings:
            out = made.folder / f"{folder.name}-{turn}.jsonl"
            prefix = f"{folder.name}-{turn}."
            commands = {
                "replay": timed(
                    made.kafka.bootstrap, "replay", str(folder), "--prefix", prefix,
                    "--speed", "max", "--run", "--delete-after",
                ),
                "diagnose": timed("", "diagnose", str(folder), "--out", str(out)),
            }  # fmt: skip
            for name, took in commands.items():
                times[name].append((results, took.seconds))
                per_million[name].append(took.cpu_s / results * MEGA)
                say(f"{name} of {results:,} results: {took.seconds:.1f} s, "
                    f"CPU {took.cpu_s:.1f} s")  # fmt: skip
        for name, (short, long) in times.items():
            samples[name].append(extrapolated_s(short, long, BILLION) / 60)
    told = " and ".join(f"{results / MEGA:.1f} M" for _, results in recordings)
    day = f"of a day of a billion results to verdicts, extrapolated from {told}"
    return [
        row(f"replay {day}", samples["replay"], "min", 10.0, "<="),
        row(f"diagnose {day}", samples["diagnose"], "min", sense="<="),
        *(
            row(f"{name}: CPU of all processes but the broker, each million results", found, "s",
                sense="<=")
            for name, found in per_million.items()
        ),
    ]  # fmt: skip
