"""What processes print in which sets of strings have different orders."""

import subprocess
import sys


def printed(code: str) -> set[str]:
    """Return what a program prints under two hash seeds: one text if it is the same."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
