"""Dumps as the Flight Recorder's format is documented, made by hand: of NCCL, which needs a GPU."""

import json
import pickle
from typing import Any, Final

BEGIN_NS: Final = 1_760_000_000_000_000_000
STEP_NS: Final = 10_000_000
TIMEOUT_MS: Final = 600_000


class Rank:
    """What one rank records; each launch is a step after the one before.

    Parameters
    ----------
    rank
        Global rank.
    groups
        Members by name of the group; the description of group `0` is that of the world.
    clock_ns
        How far this rank's clock is ahead.
    """

    def __init__(
        self, rank: int, groups: dict[str, list[int]], *, clock_ns: int = 0, version: str = "2.10"
    ) -> None:
        self.rank = rank
        self.groups = {name: ranks for name, ranks in groups.items() if rank in ranks}
        self.version = version
        self.clock_ns = clock_ns
        self.entries: list[dict[str, Any]] = []
        self._sequences: dict[tuple[str, bool], int] = {}

    def launch(
        self,
        group: str,
        operation: str = "all_reduce",
        *,
        sizes: list[list[int]] | None = None,
        outputs: list[list[int]] | None = None,
        dtype: str = "BFloat16",
        state: str = "completed",
        p2p: bool = False,
        same_launch: bool = False,
    ) -> "Rank":
        """Record an operation. One that is not completed has timed out, if it is retired."""
        key = (group, p2p)
        if not same_launch:
            self._sequences[key] = self._sequences.get(key, 0) + 1
        sizes = [[1024]] if sizes is None else sizes
        created = BEGIN_NS + self.clock_ns + STEP_NS * len(self.entries)
        done = state == "completed"
        begun = state in {"completed", "started"}
        self.entries.append(
            {
                "record_id": len(self.entries),
                "pg_id": int(group) if group.isdigit() else 99,
                "process_group": (group, "default_pg" if group == "0" else "undefined"),
                "collective_seq_id": self._sequences.get((group, False), 0),
                "p2p_seq_id": self._sequences.get((group, True), 0),
                "op_id": len(self.entries) + 1,
                "profiling_name": f"nccl:{operation}",
                "time_created_ns": created,
                "input_sizes": sizes,
                "input_dtypes": [dtype] * len(sizes),
                "output_sizes": sizes if outputs is None else outputs,
                "output_dtypes": [dtype] * len(sizes if outputs is None else outputs),
                "state": state,
                "time_discovered_started_ns": created + 1_000_000 if begun else None,
                "time_discovered_completed_ns": created + 2_000_000 if done else None,
                "retired": done,
                "timeout_ms": TIMEOUT_MS,
                "is_p2p": p2p,
                "frames": [
                    {"name": "train", "filename": f"/job/train_{operation}.py", "line": 7},
                    {"name": "main", "filename": "/job/main.py", "line": 1},
                ],
            }
        )
        return self

    def time_out(self) -> "Rank":
        """Let what is not completed be given up."""
        for entry in self.entries:
            entry["retired"] = True
        return self

    def document(self, *, ring: int | None = None) -> dict[str, Any]:
        """Return the dump, of a ring of so many operations."""
        entries = self.entries if ring is None else self.entries[-ring:]
        return {
            "version": self.version,
            "comm_lib_version": "2.27.3",
            "pg_config": {
                name: {
                    "name": name,
                    "desc": "default_pg" if name == "0" else "undefined",
                    "ranks": json.dumps(ranks),
                }
                for name, ranks in self.groups.items()
            },
            "pg_status": {},
            "entries": [dict(entry) for entry in entries],
        }

    def pickled(self, *, ring: int | None = None) -> bytes:
        """Return the dump as a pickle, as PyTorch's own pickler writes it: protocol 2."""
        return pickle.dumps(self.document(ring=ring), protocol=2)

    def json(self) -> bytes:
        """Return the dump as JSON, where 0 stands for a time that is missing."""
        document = self.document()
        for entry in document["entries"]:
            for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] = entry[key] or 0
            entry.pop("frames", None)
        return json.dumps(document).encode()


WORLD: Final = {"0": [0, 1, 2, 3]}
# Tensor-parallel pairs, and data-parallel pairs across them.
MESH: Final = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}


def job(groups: dict[str, list[int]] | None = None, steps: int = 5) -> list[Rank]:
    """Return four ranks after some healthy all-reduces over all of them."""
    ranks = [Rank(rank, WORLD if groups is None else groups) for rank in range(4)]
    for rank in ranks:
        for _ in range(steps):
            rank.launch("0")
    return ranks
