"""Writes generated files, or checks that they are current."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def write_or_check(
    command: str,
    files: Mapping[str, Callable[[], str]],
    folder: Path,
    arguments: list[str] | None,
) -> int:
    """Write the files of a command into a folder, or with `--check` only compare them.

    Returns
    -------
    int
        Exit code: 1 if a file is not current.
    """
    parser = argparse.ArgumentParser(prog=command, description=f"Write {', '.join(files)}")
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    check: bool = parser.parse_args(arguments).check
    code = 0
    for name, made in files.items():
        path, text = folder / name, made()
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{name} is not current: run `{command}`", file=sys.stderr)
            code = 1
    return code
