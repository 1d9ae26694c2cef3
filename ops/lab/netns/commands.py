"""Runs `ip`, `bridge` and `tc`, many commands at once; makes and removes namespaces."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.lab.errors import LabError
from ops.lab.netns.plan import prefix_of
from probers.config.rnics import NAMED, namespace_path
from probers.host.netns import inside

# A lab of 64 hosts takes some seconds; what takes longer hangs.
TIMEOUT_S: Final = 60.0


# Of each kind of device that a lab has, one.
TRIED: Final = (
    "link add b0 type bridge",
    "link add v0 type veth peer name v1",
    "link add x0 type vxlan id 1 dstport 4789 local 127.0.0.1",
    "tuntap add t0 mode tap",
)


class CommandError(LabError):
    """A command of iproute2 failed; the message holds what it said."""


def run(tool: str, *arguments: str, text: str | None = None) -> str:
    """Run a command, return what it prints.

    Raises
    ------
    CommandError
        If it fails, or is not there.
    """
    path = shutil.which(tool)
    if path is None:
        raise CommandError(f"{tool} is not installed; it is part of iproute2")
    done = subprocess.run(
        [path, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = " / ".join(done.stderr.strip().splitlines()[:3])
        raise CommandError(f"{tool} {' '.join(arguments)}: {said}")
    return done.stdout


def batch(tool: str, namespace: str | None, commands: Sequence[str]) -> None:
    """Run commands of one tool in a namespace, the first that fails ends them.

    Raises
    ------
    CommandError
        With what the tool said.
    """
    if commands:
        where = () if namespace is None else ("-n", namespace)
        run(tool, *where, "-batch", "-", text="\n".join(commands) + "\n")


def refusal(name: str) -> str | None:
    """Return why a namespace and what a lab puts in it cannot be had here; None: they can.

    A container's root may lack the capabilities, and a kernel the devices: so they are made,
    in a namespace of that name, and removed.
    """
    try:
        run("ip", "netns", "add", name)
    except (CommandError, subprocess.TimeoutExpired) as error:
        return str(error)
    try:
        batch("ip", name, TRIED)
        write_sysctls(name, {"net/ipv4/fib_multipath_hash_policy": "1"})
    except (CommandError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        run("ip", "netns", "del", name)
    return None


def write_sysctls(namespace: str, values: dict[str, str]) -> None:
    """Write below /proc/sys as it is in a namespace."""

    def write() -> None:
        for name, value in values.items():
            path = Path("/proc/sys") / name
            # A kernel without IPv6 has nothing of it to be switched off.
            if path.exists():
                path.write_text(value, encoding="ascii")

    inside(namespace_path(namespace), write)


def namespaces(folder: Path) -> list[str]:
    """Return the names of the namespaces that a lab in that folder has made."""
    prefix = prefix_of(folder)
    try:
        return sorted(p.name for p in NAMED.iterdir() if p.name.startswith(prefix))
    except OSError:
        return []


def remove_namespaces(folder: Path) -> list[str]:
    """Remove a lab's namespaces, with all that is in them; return their names.

    Raises
    ------
    CommandError
        If that fails.
    """
    names = namespaces(folder)
    batch("ip", None, [f"netns del {name}" for name in names])
    return names
