"""What a rank's environment says of NCCL's own sources: the ring, the Inspector's log, RAS; pure.

A job's user writes it: of addresses only those of the loopback are taken, so that nobody makes the
collector connect to somewhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RING_NAME: Final = "SKELETONHUNTER_RING_DIR"
RAS_HOST: Final = "127.0.0.1"
RAS_PORT: Final = 28028
# Ports below are those of services of the host, which may take a question for something else.
LEAST_PORT: Final = 1024
_ADDRESS: Final = re.compile(r"(?:(localhost|127(?:\.\d{1,3}){3})|\[(::1)\])(?::(\d{1,5}))?")
_NUMBER: Final = re.compile(r"\s*\d{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclEnvironment:
    """Where NCCL's own sources of a rank are.

    Attributes
    ----------
    ring_folder
        None: where the plugin keeps it by itself.
    inspector_folder
        Beside the process's working folder, if it is no absolute path. None: no log is written.
    host_name
        As the process's container calls it; None: not known.
    ras_address
        Host and port. None: RAS is off, or is not on the loopback.
    """

    ring_folder: str | None = None
    inspector_folder: str | None = None
    host_name: str | None = None
    ras_address: tuple[str, int] | None = (RAS_HOST, RAS_PORT)


def nccl_environment(given: Mapping[str, str]) -> NcclEnvironment:
    """Return what an environment says, by NCCL's rules."""
    return NcclEnvironment(
        ring_folder=given.get(RING_NAME) or None,
        inspector_folder=_inspector_folder(given),
        host_name=given.get("HOSTNAME") or None,
        ras_address=_ras_address(given),
    )


def _inspector_folder(given: Mapping[str, str]) -> str | None:
    if given.get("NCCL_INSPECTOR_ENABLE") != "1" or given.get("NCCL_INSPECTOR_PROM_DUMP") == "1":
        return None
    if given.get("NCCL_INSPECTOR_DUMP_DIR"):
        return given["NCCL_INSPECTOR_DUMP_DIR"]
    job = _NUMBER.match(given.get("SLURM_JOBID", ""))
    return f"nccl-inspector-{int(job[0]) if job else 'unknown-jobid'}"


def _ras_address(given: Mapping[str, str]) -> tuple[str, int] | None:
    if given.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        return None
    if not given.get("NCCL_RAS_ADDR"):
        return RAS_HOST, RAS_PORT
    found = _ADDRESS.fullmatch(given["NCCL_RAS_ADDR"].strip())
    if found is None:
        return None
    host = "::1" if found[2] else RAS_HOST if found[1] == "localhost" else found[1]
    port = int(found[3] or RAS_PORT)
    return (host, port) if LEAST_PORT <= port <= 65_535 else None
