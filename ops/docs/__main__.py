"""Write the generated pages of docs/reference/, or check that they are current.

python -m ops.docs            write the pages
python -m ops.docs --check    exit code 1 if a page is not current
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ops.docs import kinds, metrics, settings, topics
from ops.docs.generated import write_or_check

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "topics.md": topics.page,
    "kinds.md": kinds.page,
    "settings.md": settings.page,
    "metrics.md": metrics.page,
}


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Write or check the pages in a folder; return the exit code."""
    return write_or_check("python -m ops.docs", PAGES, folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
