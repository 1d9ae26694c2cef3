"""The guest's first file system: kernel modules in the order they need, and a first program."""

import lzma
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.lab.errors import LabError

# crc32: Soft-RoCE checks packets with it and does not say so.
MODULES: Final = (
    "virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "veth", "bridge", "sch_netem",
    "sch_tbf", "sch_ingress", "act_mirred", "cls_u32", "crc32_generic", "crc32_pclmul",
    "rdma_rxe", "ib_uverbs",
)  # fmt: skip
FOLDERS: Final = ("bin", "dev", "proc", "sys", "mods", "lower", "extra", "rw", "newroot")
# cpio's "new ASCII" format, which the kernel's initramfs is in
# (Documentation/driver-api/early-userspace/buffer-format.rst).
_CPIO_MAGIC: Final = b"070701"
_FOLDER: Final = 0o40755
_PROGRAM: Final = 0o100755

# The guest's root is the host's own, read-only, under the unpacked packages, under memory:
# the work tree and its environment are there by their own paths, and nothing stays.
INIT: Final = r"""#!/bin/busybox sh
B=/bin/busybox; N=/newroot; O=trans=virtio,version=9p2000.L,msize=262144
$B mount -t proc proc /proc; $B mount -t sysfs sysfs /sys; $B mount -t devtmpfs dev /dev
for m in /mods/*.ko; do $B insmod $m || echo "machine: $m does not load"; done
$B mount -t 9p -o $O,ro,cache=loose host /lower || $B poweroff -f
$B mount -t 9p -o $O,ro,cache=loose extra /extra || $B poweroff -f
$B mount -t tmpfs rw /rw; $B mkdir /rw/upper /rw/work
$B mount -t overlay -o lowerdir=/extra:/lower,upperdir=/rw/upper,workdir=/rw/work overlay $N
for d in proc sys dev; do $B mount --move /$d $N/$d; done
$B mount -t tmpfs run $N/run; $B mkdir -p $N/run/out $N/run/verbs $N/dev/pts $N/dev/shm
$B mount -t devpts pts $N/dev/pts; $B mount -t tmpfs shm $N/dev/shm
$B mount -t 9p -o $O out $N/run/out
$B ln -s /usr/lib/python3/dist-packages/pyverbs $N/run/verbs/pyverbs
$B ip link set lo up; $B hostname rxe
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run TMPDIR=/run LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
$B chroot $N /bin/sh /run/out/command.sh <$N/dev/null; echo $? >$N/run/out/status
$B poweroff -f
"""


def build_initrd(kernel: Path, busybox: bytes, modules: Sequence[str]) -> bytes:
    """Return the archive.

    Parameters
    ----------
    kernel : where the kernel's package is unpacked

    Raises
    ------
    LabError
        If the kernel has no Soft-RoCE.
    """
    ordered = _in_order(kernel, modules)
    if "rdma_rxe" not in ordered:
        raise LabError("this kernel has no Soft-RoCE (rdma_rxe)")
    out = bytearray()
    for folder in FOLDERS:
        _add(out, folder, _FOLDER)
    _add(out, "bin/busybox", _PROGRAM, busybox)
    _add(out, "init", _PROGRAM, INIT.encode())
    for number, (name, data) in enumerate(ordered.items()):
        _add(out, f"mods/{number:02d}_{name}.ko", 0o100644, data)
    _add(out, "TRAILER!!!", 0)
    return bytes(out)


def _in_order(kernel: Path, wanted: Sequence[str]) -> dict[str, bytes]:
    """Return the modules with what they depend on, each after those it needs."""
    paths = {
        re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path
        for path in kernel.glob("lib/modules/*/kernel/**/*.ko*")
    } or {
        re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path
        for path in kernel.glob("usr/lib/modules/*/kernel/**/*.ko*")
    }
    ordered: dict[str, bytes] = {}

    def need(name: str) -> None:
        if name in ordered or name not in paths:  # what has no file is built in
            return
        path = paths[name]
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        depends = re.search(rb"depends=([^\0]*)\0", data)
        for other in (depends.group(1) if depends else b"").decode().replace("-", "_").split(","):
            need(other)
        ordered[name] = data

    for name in wanted:
        need(name)
    return ordered


def _add(out: bytearray, name: str, mode: int, data: bytes = b"") -> None:
    encoded = name.encode() + b"\0"
    fields = (len(out) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    out += _CPIO_MAGIC + b"".join(b"%08X" % field for field in fields) + encoded
    out += b"\0" * (-len(out) % 4) + data
    out += b"\0" * (-len(out) % 4)
