"""Writes what the chart makes of the example values: `python -m ops.deploy.rendering`; needs helm.

`examples/NAME.values.yaml` becomes `examples/NAME.rendered.yaml`, which is kept: what is installed
can be read, and checked, without helm. Its first line is a digest of what it was made from, so that
a change of the chart without a new example is noticed without helm, too.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

CHART: Final = Path(__file__).parent / "chart"
EXAMPLES: Final = Path(__file__).parent / "examples"
RELEASE: Final = "skeletonhunter"
# helm without a cluster must be told a version; nothing in the chart depends on it.
KUBERNETES: Final = "1.33.0"
VALUES: Final = ".values.yaml"
RENDERED: Final = ".rendered.yaml"


def names() -> list[str]:
    """Return the names of the examples."""
    return sorted(path.name.removesuffix(VALUES) for path in EXAMPLES.glob(f"*{VALUES}"))


def digest(name: str) -> str:
    """Return the line that says from which chart and values an example was made.

    The alerts (`files`) are not among it: no example has them, and they change for reasons of
    their own.
    """
    found = hashlib.sha256()
    templates = sorted((CHART / "templates").iterdir())
    for path in (
        CHART / "Chart.yaml",
        CHART / "values.yaml",
        *templates,
        EXAMPLES / f"{name}{VALUES}",
    ):
        found.update(f"{path.name}\0".encode() + path.read_bytes())
    return f"# made from {found.hexdigest()}"


def render(helm: str, values: Path, *words: str) -> str:
    """Return the manifests that helm makes of the values.

    Raises
    ------
    subprocess.CalledProcessError
        If it refuses them; `stderr` says why.
    """
    return subprocess.run(
        [
            helm,
            "template",
            RELEASE,
            str(CHART),
            "--kube-version",
            KUBERNETES,
            "-f",
            str(values),
            *words,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def main() -> int:
    """Write all examples anew."""
    helm = shutil.which("helm")
    if helm is None:
        print("helm is not on the path: https://helm.sh/docs/intro/install/", file=sys.stderr)
        return os.EX_UNAVAILABLE
    for name in names():
        text = render(helm, EXAMPLES / f"{name}{VALUES}")
        (EXAMPLES / f"{name}{RENDERED}").write_text(f"{digest(name)}\n{text}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
