"""`python -m arena.skeletons`: how well skeletons are inferred, beside the baselines."""

import argparse
import json
import sys
from dataclasses import asdict

import polars as pl

from arena.skeletons.baselines import BASELINES
from arena.skeletons.bench import bench
from arena.skeletons.calibration import TABLE, calibrate, measured, table_of
from arena.skeletons.reliability import summary_of
from arena.skeletons.report import measure, summary, table
from arena.skeletons.sealed import DEV_SEED, measure_dev
from arena.skeletons.suites import FIRST_SEED, case, cases


def main() -> int:
    """Run a suite; print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m arena.skeletons", description=__doc__)
    parser.add_argument("--suite", choices=sorted(FIRST_SEED), default="dev")
    parser.add_argument("--seeds", type=int, default=48, help="captures, 1 and more")
    parser.add_argument("--seed", type=int, action="append", help="this capture alone; repeatable")
    parser.add_argument("--methods", default=",".join(BASELINES), help="comma-separated")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--each", action="store_true", help="print every job that is not right")
    parser.add_argument(
        "--calibrate", action="store_true",
        help="fit the weights of the confidence to the kept signs of captures, and print them",
    )  # fmt: skip
    parser.add_argument(
        "--anew", action="store_true",
        help="with --calibrate: infer these captures first, and keep their signs",
    )  # fmt: skip
    parser.add_argument("--skip", type=int, default=0, help="captures of the suite to leave out")
    parser.add_argument(
        "--sealed-seeds", type=int, default=0,
        help="so many seeds of the other generator instead of a suite",
    )  # fmt: skip
    parser.add_argument("--sealed-first", type=int, default=DEV_SEED, help="the first of them")
    parser.add_argument("--bench", action="store_true", help="time 2,048 RNICs x 300 s x 10 Hz")
    options = parser.parse_args()
    if options.bench:
        print(json.dumps(bench(), indent=1))
        return 0
    if options.calibrate:
        if options.anew:
            table_of(list(measured())).write_parquet(TABLE)
        print(json.dumps(asdict(calibrate(pl.read_parquet(TABLE))), indent=1))
        return 0
    methods = options.methods.split(",")
    try:
        if options.sealed_seeds:
            others = measure_dev(options.sealed_seeds, first=options.sealed_first)
            print(json.dumps(summary_of(others), default=asdict, indent=1))
            return 0
        chosen = [case(s) for s in options.seed] if options.seed else cases(
            options.suite, options.seeds, skip=options.skip
        )  # fmt: skip
        unknown = [m for m in methods if m not in BASELINES]
        if unknown:
            raise ValueError(f"methods={unknown[0]!r}: of {', '.join(BASELINES)}")
    except ValueError as error:
        parser.error(str(error))
    outcomes = []
    for number, one in enumerate(chosen):
        outcome = measure(one, methods)
        outcomes.append(outcome)
        if options.each:
            for score in outcome.scores.get("ours", []):
                _tell(one.name, one.axes, score.figures, score.confidence)
        elif sys.stderr.isatty():
            print(f"\r{number + 1}/{len(chosen)}", end="", file=sys.stderr)
    found = summary(outcomes)
    print(json.dumps(found, indent=1) if options.json else table(found))
    return 0


def _tell(name: str, axes: dict[str, str], figures: object, confidence: float) -> None:
    print(name, confidence, json.dumps(axes), json.dumps(figures))


if __name__ == "__main__":
    sys.exit(main())
