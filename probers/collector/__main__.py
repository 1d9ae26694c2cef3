"""`python -m probers.collector`: the collector."""

import importlib

from probers.memory import hide_unneeded_modules
from schemas.process.memory import use_one_arena


def main() -> int:
    """Load the rest and run."""
    use_one_arena()
    return int(importlib.import_module("probers.collector.cli").main())


if __name__ == "__main__":
    # Before anything imports what is not needed; `logging` asks for some of it.
    hide_unneeded_modules()
    importlib.import_module("schemas.process.ending").end_with(main)
