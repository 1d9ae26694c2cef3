"""`python -m probers`: the agent; `python -m probers health`: ask one how it is."""

import importlib
import sys

from probers.memory import hide_unneeded_modules
from schemas.process.memory import use_one_arena


def main() -> int:
    """Load the rest and run."""
    if sys.argv[1:2] == ["health"]:
        return int(importlib.import_module("probers.health.client").main(sys.argv[2:]))
    use_one_arena()
    return int(importlib.import_module("probers.cli").main())


if __name__ == "__main__":
    # Before anything imports what the agent does not need; `logging` asks for some of it.
    hide_unneeded_modules()
    importlib.import_module("schemas.process.ending").end_with(main)
