"""Libraries of others that the page uses: kept in the package, renewed from npm.

`page/vendor/vendored.json` names each with version, licence, files and their SHA-256.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "page" / "vendor"
LIST: Final = "vendored.json"
ROOT: Final = Path(__file__).parents[2]


def read_list(folder: Path) -> list[dict[str, Any]]:
    """Return the libraries of a folder."""
    found: list[dict[str, Any]] = json.loads((folder / LIST).read_text(encoding="utf-8"))
    return found


def sha256(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wrong_files(folder: Path) -> list[str]:
    """Return files that are missing, changed, or in no list."""
    wrong = []
    listed = {LIST}
    for library in read_list(folder):
        for file in library["files"]:
            listed.add(file["file"])
            path = folder / file["file"]
            if not path.is_file():
                wrong.append(f"{file['file']}: missing")
            elif sha256(path) != file["sha256"]:
                wrong.append(f"{file['file']}: not what {library['name']} published")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return wrong + [f"{name}: not in {LIST}" for name in sorted(there - listed)]


def renew(folder: Path) -> None:
    """Fetch all libraries of a folder at the versions in its list, and note their hashes.

    npm's own client finds the registry, and checks what it gets against the registry's hashes.
    """
    libraries = read_list(folder)
    for library in libraries:
        name = f"{library['name']}@{library['version']}"
        with tempfile.TemporaryDirectory(prefix="vendored-") as scratch:
            done = subprocess.run(
                ["npm", "pack", "--silent", "--ignore-scripts", name],
                cwd=scratch,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            with tarfile.open(Path(scratch) / done.stdout.split()[-1]) as archive:
                for file in library["files"]:
                    content = archive.extractfile(f"package/{file['from']}")
                    if content is None:
                        raise FileNotFoundError(f"{name} has no {file['from']}")
                    path = folder / file["file"]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())
                    file["sha256"] = sha256(path)
        print(f"{name}: {len(library['files'])} files")
    (folder / LIST).write_text(json.dumps(libraries, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Renew the folders given, else those of the page and of its tests."""
    folders = [Path(name) for name in sys.argv[1:]]
    for folder in folders or [FOLDER, ROOT / "tests" / "data" / "axe"]:
        renew(folder)


if __name__ == "__main__":
    main()
