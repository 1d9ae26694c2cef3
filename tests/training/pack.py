"""Packs the dumps of real jobs as test data: an archive for each cause.

python -m tests.training.pack OUT [NAME=CAUSE ...]
"""

import sys
import tarfile
from pathlib import Path

from tests.collective_dumps import FOLDER


def pack(source: Path, target: Path) -> None:
    """Write the files of a folder to an archive that names neither owner nor machine."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as archive:
        for path in sorted(source.iterdir()):
            archive.add(path, path.name, filter=anonymous)


def main() -> None:
    """Pack the folders of causes."""
    folder = Path(sys.argv[1])
    for argument in sys.argv[2:]:
        name, _, cause = argument.partition("=")
        pack(folder / (cause or name), FOLDER / f"{name}.tar.xz")


if __name__ == "__main__":
    main()
