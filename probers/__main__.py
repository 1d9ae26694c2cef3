"""`python -m probers`: the agent."""

import importlib
import sys

from probers import lean


def main() -> int:
    """Hide what is not needed, then load the rest and run."""
    lean.skip_unneeded()
    lean.one_arena()
    return int(importlib.import_module("probers.cli").main())


if __name__ == "__main__":
    sys.exit(main())
