"""What NCCL's Inspector logs and what its RAS answers, made by hand after the documentation."""

import json
from typing import Any

LOGGED_US = 1_700_000_000_000_000


def inspector_line(number: int = 1, /, **changed: Any) -> dict[str, Any]:
    """Return a line of the Inspector, of format 4.0; `changed` are members of its parts."""
    parts: dict[str, dict[str, Any]] = {
        "header": {"id": "0xabc", "comm_name": "dp", "rank": 1, "n_ranks": 2, "nnodes": 2},
        "metadata": {
            "inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "x",
            "dump_timestamp_us": LOGGED_US, "hostname": "h", "pid": 7,
        },
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1_000,
            "coll_exec_time_us": 250, "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 1.5, "coll_busbw_gbs": 2.5,
        },
    }  # fmt: skip
    for name, value in changed.items():
        for part in parts.values():
            if name in part:
                part[name] = value
    return parts


def inspector_p2p(number: int = 1, func: str = "Send") -> dict[str, Any]:
    """Return a line of a point-to-point operation of rank 1 with rank 0."""
    line = inspector_line()
    del line["coll_perf"]
    line["p2p_perf"] = {
        "p2p": func, "p2p_sn": number, "p2p_peer": 0, "p2p_msg_size_bytes": 64,
        "p2p_exec_time_us": 9, "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 1.0,
        "p2p_busbw_gbs": 1.0,
    }  # fmt: skip
    return line


def lines(*documents: dict[str, Any]) -> list[bytes]:
    """Return lines as they are written."""
    return [json.dumps(document).encode() for document in documents]


def ras_rank(rank: int, *, pid: int = 7, host: str = "10.0.0.1", **counts: int) -> dict[str, Any]:
    """Return a rank of an answer of RAS."""
    return {
        "rank": rank, "host": host, "pid": pid, "cuda_dev": 0, "nvml_dev": 0,
        "status": {
            "init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
            "abort_flag": False,
        },
        "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 0} | counts,
    }  # fmt: skip


def ras_missing(rank: int, *, dead: bool = False) -> dict[str, Any]:
    """Return a rank that did not answer."""
    return {
        "rank": rank, "host": "10.0.0.9", "pid": 99, "cuda_dev": 0, "nvml_dev": 0,
        "status": {"unresponsive": True, "considered_dead": dead},
    }  # fmt: skip


def ras_group(
    ranks: list[dict[str, Any]],
    missing: list[dict[str, Any]] | None = None,
    *,
    size: int = 2,
    name: str = "0xabc",
) -> dict[str, Any]:
    """Return a communicator of an answer."""
    left = missing or []
    return {
        "hash": name, "secondary_hash": "0x1:0x2", "size": size, "ranks_count": len(ranks),
        "missing_ranks_count": len(left), "ranks": ranks, "missing_ranks": left,
    }  # fmt: skip


def ras_answer(*groups: dict[str, Any]) -> bytes:
    """Return an answer of RAS."""
    return json.dumps(
        {
            "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
            "timestamp": "2025-12-19 13:06:53", "communicators_count": len(groups),
            "communicators": groups,
            "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
        }
    ).encode()  # fmt: skip
