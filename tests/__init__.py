"""All tests: `make unit` runs those without a broker, `make test` runs every one."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The repository."""
DATA: Final = ROOT / "tests" / "data"
"""Files that tests read."""
PACKAGES: Final = (
    "schemas", "probers", "streams", "skeleton_job", "localizer", "arena", "ops",
)  # fmt: skip
"""The project's packages, without tests."""
