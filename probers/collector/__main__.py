"""`python -m probers.collector`: the collector."""

import importlib

from probers.memory import hide_unneeded_modules
from schemas.process.ending import end_with
from schemas.process.memory import use_one_arena


def main() -> int:
    """Hide what is not needed, then load the rest and run."""
    hide_unneeded_modules()
    use_one_arena()
    return int(importlib.import_module("probers.collector.cli").main())


if __name__ == "__main__":
    end_with(main)
