"""`python -m probers`: the agent; `python -m probers health`: ask one how it is."""

import importlib
import sys

from probers.memory import hide_unneeded_modules
from schemas.process.ending import end_with
from schemas.process.memory import use_one_arena


def main() -> int:
    """Hide what is not needed, then load the rest and run."""
    hide_unneeded_modules()
    if sys.argv[1:2] == ["health"]:
        return int(importlib.import_module("probers.health.client").main(sys.argv[2:]))
    use_one_arena()
    return int(importlib.import_module("probers.cli").main())


if __name__ == "__main__":
    end_with(main)
