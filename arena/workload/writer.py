"""Captures as files, in the formats that `skeletonhunter skeleton infer` reads."""

import json
from pathlib import Path

from arena.workload.capture import Capture


def write(made: Capture, folder: Path, *, csv: bool = False) -> Path:
    """Write counters, META.json and TRUTH.json into a folder; return the counters' path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("counters.csv" if csv else "counters.parquet")
    if csv:
        made.table.write_csv(path)
    else:
        made.table.write_parquet(path)
    (folder / "META.json").write_text(json.dumps(made.meta, indent=1) + "\n")
    truth = {"tasks": [t.as_dict() for t in made.truth.jobs], "idle": sorted(made.truth.idle)}
    (folder / "TRUTH.json").write_text(json.dumps(truth, indent=1) + "\n")
    return path
