"""Write the generated pages of docs/reference/, or check that they are current.

python -m ops.docs            write the pages
python -m ops.docs --check    exit code 1 if a page is not current
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ops.docs import kinds, metrics, settings, topics

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "topics.md": topics.page,
    "kinds.md": kinds.page,
    "settings.md": settings.page,
    "metrics.md": metrics.page,
}


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Write or check the pages in a folder; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ops.docs", description="Write the generated pages of docs/reference/"
    )
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    check: bool = parser.parse_args(arguments).check
    code = 0
    for name, page in PAGES.items():
        path, text = folder / name, page()
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{name} is not current: run `python -m ops.docs`", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
