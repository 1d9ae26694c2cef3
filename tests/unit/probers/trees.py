"""Builds the trees of sysfs and procfs that tests/data/sysfs describes, as folders."""

from dataclasses import dataclass
from pathlib import Path

from ops.bench.agent.rig import build_tree
from tests import DATA

FOLDER = DATA / "sysfs"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))


@dataclass(frozen=True, slots=True)
class Tree:
    """A host with one RNIC."""

    root: Path

    @property
    def device(self) -> Path:
        """Folder of the RDMA device, as it is named to people."""
        (device,) = (self.root / "sys" / "class" / "infiniband").iterdir()
        return device

    @property
    def port(self) -> Path:
        """Folder of its port."""
        return self.device / "ports" / "1"

    @property
    def netdev(self) -> Path:
        """Folder of the first network device."""
        return min((self.root / "sys" / "class" / "net").iterdir())

    @property
    def function(self) -> Path:
        """Folder of its PCI function."""
        return (self.device / "device").resolve()

    @property
    def proc(self) -> str:
        """Where its procfs is mounted."""
        return str(self.root / "proc")


def build(name: str, root: Path) -> Tree:
    """Make the folders of a tree; return it."""
    build_tree((FOLDER / f"{name}.txt").read_text("utf-8"), root)
    return Tree(root)
