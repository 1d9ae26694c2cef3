"""Compiles the extensions of pyproject.toml in place, and removes their sources.

For the agent's image, which installs two of the packages and has no setuptools for them:

    python extensions.py PYPROJECT FOLDER

FOLDER has the packages. An extension of a package that is not there is left out. Nothing of the
project is imported: the image has not all of it.
"""

import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path


def compile_extensions(pyproject: Path, folder: Path) -> list[str]:
    """Compile what `folder` has the sources of; return the names of the modules.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler fails.
    """
    settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    compiled = []
    for module in settings["tool"]["setuptools"]["ext-modules"]:
        sources = [folder / source for source in module["sources"]]
        headers = [folder / header for header in module.get("depends", ())]
        if not all(source.exists() for source in sources):
            continue
        target = folder.joinpath(*module["name"].split("."))
        include = f"-I{sysconfig.get_path('include')}"
        command = ["cc", *module["extra-compile-args"], "-fPIC", "-shared", include]
        subprocess.run([*command, *map(str, sources), "-o", f"{target}.so"], check=True)
        for source in (*sources, *headers):
            source.unlink()
        compiled.append(module["name"])
    return compiled


if __name__ == "__main__":
    print("compiled:", *compile_extensions(Path(sys.argv[1]), Path(sys.argv[2])))
