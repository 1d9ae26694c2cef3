r"""Makes a host's sysfs and procfs as folders, from a description.

A line that begins with `/` names a folder; those after it are its files (`name text`, `\n`
for a line break) and its symbolic links (`name -> target`); `#` begins a comment.
"""

from pathlib import Path


def build_tree(description: str, root: Path) -> None:
    """Make the folders, files and links that a description names below `root`."""
    folder = root
    for line in description.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("/"):
            folder = root / line.removeprefix("/")
            folder.mkdir(parents=True, exist_ok=True)
            continue
        file, _, text = line.partition(" ")
        if text.startswith("-> "):
            (folder / file).symlink_to(text.removeprefix("-> "))
        else:
            (folder / file).write_text(text.replace("\\n", "\n") + "\n", encoding="utf-8")
