"""What the machine is made of: Debian's kernel, RDMA user space and QEMU, unpacked in the cache.

`apt-get download` and `dpkg -x` need no root and install nothing: QEMU and what it needs
are taken into the cache only where the system has no QEMU of its own.
"""

import gzip
import lzma
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.broker.cache import cache_dir, locked
from ops.lab.errors import LabError
from ops.lab.vm.initrd import MODULES, build_initrd

QEMU: Final = "qemu-system-x86_64"
QEMU_PACKAGE: Final = "qemu-system-x86"
KERNEL_PACKAGE: Final = "linux-image-amd64"
GUEST_PACKAGES: Final = (
    "busybox-static", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200",
    "librdmacm1", "python3-pyverbs", "iproute2", "libbpf1", "libelf1", "libmnl0", "libxtables12",
    "libcap2", "libcap2-bin", "libdb5.3", "libbsd0", "libmd0", "libtirpc3",
)  # fmt: skip
# Of Debian 12, whose packages the guest is made of.
GUEST_PYTHON: Final = (3, 11)
TOOLS: Final = ("apt-get", "apt-cache", "dpkg")
# Changes when what is unpacked changes: an older cache is then made anew.
LAYOUT: Final = "1"
# Bookworm's packages are not all usr-merged; a real /lib would hide the host's link.
MERGED: Final = ("bin", "sbin", "lib", "lib64")
DOWNLOAD_TIMEOUT_S: Final = 600
_XZ_MAGIC: Final = b"\xfd7zXZ\0"

Say = Callable[[str], None]


class NoMachineError(LabError):
    """The machine cannot be had here; the message says why, for a test that is skipped."""


@dataclass(frozen=True, slots=True)
class Image:
    """Where the parts of the machine are."""

    folder: Path

    @property
    def root(self) -> Path:
        """What is laid over the host's files in the guest."""
        return self.folder / "root"

    @property
    def kernel(self) -> Path:
        """The bare ELF: QEMU boots it without decompressing, which emulation is slow at."""
        return self.folder / "vmlinux"

    @property
    def initrd(self) -> Path:
        """Modules and the first program."""
        return self.folder / "initrd"

    @property
    def qemu_root(self) -> Path:
        """QEMU and its libraries, where the system has none."""
        return self.folder / "qemu"

    def qemu(self) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts QEMU, and its environment."""
        own = shutil.which(QEMU)
        if own is not None:
            return [own], dict(os.environ)
        root = self.qemu_root / "usr"
        libraries = ":".join(str(p) for p in (root / "lib" / "x86_64-linux-gnu", root / "lib"))
        command = [str(root / "bin" / QEMU)]
        for data in ("share/qemu", "share/seabios"):
            command += ["-L", str(root / data)]
        return command, {**os.environ, "LD_LIBRARY_PATH": libraries}


def why_no_machine() -> str | None:
    """Return why the machine cannot be had here; None: at a first look it can."""
    if os.uname().machine != "x86_64":
        return f"the machine emulates x86-64; this is {os.uname().machine}"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"Debian's packages are needed; there is no {', '.join(missing)}" if missing else None


def fetch_image(say: Say) -> Image:
    """Return the parts, fetched and unpacked if they are not there yet.

    Raises
    ------
    NoMachineError
        If this is no Debian on x86-64, or packages cannot be had.
    """
    lacking = why_no_machine()
    if lacking is not None:
        raise NoMachineError(lacking)
    folder = cache_dir() / "rxe"
    with locked(folder, lambda: say("another process fetches the machine")):
        image = Image(folder)
        mark = folder / f".complete-{LAYOUT}"
        if not mark.exists():
            _make(image, say)
            mark.touch()
        elif shutil.which(QEMU) is None and not image.qemu_root.is_dir():
            _unpack(_closure(), folder, image.qemu_root, say)
    return image


def _make(image: Image, say: Say) -> None:
    for leftover in (image.root, image.qemu_root, image.folder / "kernel"):
        shutil.rmtree(leftover, ignore_errors=True)
    if os.geteuid() == 0 and not _known(KERNEL_PACKAGE):
        _run(["apt-get", "-q", "update"])
    _unpack(GUEST_PACKAGES, image.folder, image.root, say)
    if shutil.which(QEMU) is None:
        _unpack(_closure(), image.folder, image.qemu_root, say)
    kernel = image.folder / "kernel"
    _unpack([_kernel_package()], image.folder, kernel, say)
    image.kernel.write_bytes(_bare_elf(next((kernel / "boot").glob("vmlinuz-*")).read_bytes()))
    busybox = (image.root / "usr" / "bin" / "busybox").read_bytes()
    initrd = build_initrd(kernel, busybox, MODULES)
    image.initrd.write_bytes(gzip.compress(initrd, compresslevel=1))
    shutil.rmtree(kernel)


def _unpack(packages: Sequence[str], folder: Path, into: Path, say: Say) -> None:
    debs = folder / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    say(f"fetching {len(packages)} packages: {packages[0]} …")
    _run(["apt-get", "-q", "download", *packages], cwd=debs)
    into.mkdir(parents=True, exist_ok=True)
    for deb in sorted(debs.glob("*.deb")):
        _run(["dpkg", "-x", str(deb), str(into)])
    shutil.rmtree(debs)
    for name in MERGED:
        loose = into / name
        if loose.is_dir() and not loose.is_symlink():
            shutil.copytree(loose, into / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(loose)


def _closure() -> list[str]:
    """Return QEMU's package and those that it needs and the system lacks."""
    told = _run(["apt-get", "install", "-s", "--no-install-recommends", QEMU_PACKAGE])
    return [line.split()[1] for line in told.splitlines() if line.startswith("Inst ")]


def _kernel_package() -> str:
    """Return the newest kernel of the plain flavour: the cloud flavour has no Soft-RoCE."""
    told = _run(["apt-cache", "depends", "--important", KERNEL_PACKAGE])
    found = re.search(r"Depends: (linux-image-\S+-amd64)\b", told)
    if found is None:
        raise NoMachineError(f"{KERNEL_PACKAGE} names no kernel: Debian's packages are needed")
    return found.group(1)


def _known(package: str) -> bool:
    shown = subprocess.run(["apt-cache", "show", package], check=False, capture_output=True)
    return shown.returncode == 0


def _bare_elf(compressed: bytes) -> bytes:
    at = compressed.find(_XZ_MAGIC)
    return lzma.LZMADecompressor().decompress(compressed[at:]) if at > 0 else compressed


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoMachineError(f"{' '.join(command[:3])}: not done in {error.timeout} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise NoMachineError(
            f"{' '.join(command[:3])}: {lines[-1]} (`apt-get update` as root may help)"
        )
    return done.stdout
