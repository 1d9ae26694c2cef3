"""Boots the machine for one command, and says how that ended."""

import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ops.lab.errors import LabError
from ops.lab.vm.packages import Image, Say, fetch_image

# The kernel of the host is not asked for help (KVM is rarely there, and often emulated).
# One CPU: with two, emulated ones wait for each other and round trips jump.
ACCELERATION: Final = ("-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-smp", "1")
APPEND: Final = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr preempt=full"
MEMORY_MB: Final = 1_024
STATUS: Final = "status"


class MachineError(LabError):
    """The machine did not come to the end of its command."""


def run_in_machine(
    command: Sequence[str],
    *,
    say: Say,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    network: bool = False,
) -> int:
    """Run a command in the machine and return its exit status; what it prints is printed.

    Parameters
    ----------
    folder : /run/out in the guest, the one place where what it writes stays
    network : whether the guest reaches this host's loopback, as 10.0.2.2

    Raises
    ------
    NoMachineError
        If the machine cannot be had here.
    MachineError
        If it did not end in time, or did not boot.
    """
    image = fetch_image(say)
    with tempfile.TemporaryDirectory(prefix="skeletonhunter-rxe-") as scratch:
        out = Path(scratch) if folder is None else folder
        status = out / STATUS
        status.unlink(missing_ok=True)
        write_script(out, command, environment or {})
        _boot(image, out, timeout_s=timeout_s, network=network)
        try:
            return int(status.read_text(encoding="ascii"))
        except (OSError, ValueError):
            raise MachineError("the machine stopped before its command had ended") from None


def write_script(out: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write what the guest runs, from this process's working directory, to where it looks."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    lines += [f"cd {shlex.quote(str(Path.cwd()))}", shlex.join(command)]
    (out / "command.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _boot(image: Image, out: Path, *, timeout_s: float, network: bool) -> None:
    command, environment = boot_command(image, out, serial=("stdio",), network=network)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the machine was not done after {timeout_s:.0f} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def boot_command(
    image: Image, out: Path, *, serial: Sequence[str], network: bool
) -> tuple[list[str], dict[str, str]]:
    """Return QEMU's command and environment; `serial` are its serial ports, the console first."""
    qemu, environment = image.qemu()
    command = [
        *qemu, *ACCELERATION, "-m", str(MEMORY_MB),
        "-display", "none", "-vga", "none", "-nodefaults", "-no-reboot",
        "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", APPEND,
        *_shared("host", Path("/"), "readonly=on,multidevs=remap"),
        *_shared("extra", image.root, "readonly=on"),
        *_shared("out", out, ""),
    ]  # fmt: skip
    for port in serial:
        command += ["-serial", port]
    if network:
        command += ["-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile="]
    return command, environment


def _shared(tag: str, path: Path, options: str) -> list[str]:
    text = f"local,path={path},mount_tag={tag},security_model=none"
    return ["-virtfs", f"{text},{options}" if options else text]
