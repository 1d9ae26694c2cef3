"""Starts `ops.lab.training.launcher` in a Python that knows nothing of the project.

PYTHON ops/lab/training/launch.py JOB.json
"""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Find the project behind the packages of this Python, which may have others of its names."""
    del sys.path[0]
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    importlib.import_module("ops.lab.training.launcher").main()


if __name__ == "__main__":
    main()
