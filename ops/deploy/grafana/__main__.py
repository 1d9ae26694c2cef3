"""Write the JSON files of the dashboards, or check that they are current.

python -m ops.deploy.grafana            write the files
python -m ops.deploy.grafana --check    exit code 1 if a file is not current
"""

import sys
from functools import partial
from pathlib import Path
from typing import Final

from ops.deploy.grafana.build import text_of
from ops.deploy.grafana.dashboards import DASHBOARDS
from ops.docs.generated import write_or_check

FOLDER: Final = Path(__file__).resolve().parent
FILES: Final = {f"{one.name}.json": partial(text_of, one) for one in DASHBOARDS}


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Write or check the files in a folder; return the exit code."""
    return write_or_check("python -m ops.deploy.grafana", FILES, folder, arguments)


if __name__ == "__main__":
    sys.exit(main())
