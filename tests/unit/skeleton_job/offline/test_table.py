"""Skeletons in a table of counters, where RNICs hardly show whether they take part."""

import numpy as np
import polars as pl

from schemas.units import SECOND_NS
from skeleton_job.offline.meta import parse_meta
from skeleton_job.offline.table import infer_table

HALF = 4
TICKS = 640


def _pipeline_of_two_hosts() -> pl.DataFrame:
    """Return counters of four stages in two hosts, two a host; all RNICs read storage as well.

    The second stage exchanges bytes with the third: the last half of one host with the first half
    of the other. The storage of the others is half as much, at any time.
    """
    rng = np.random.default_rng(1)
    bursts = np.where(np.arange(TICKS) % 20 < 6, 1.0, 0.0) * (1 + 0.1 * rng.standard_normal(TICKS))
    rows = []
    for host in range(2):
        for rail in range(2 * HALF):
            joint = (rail >= HALF) == (host == 0)
            moved = 5e7 * rng.gamma(0.5, 2.0, (2, TICKS)).clip(max=4)
            if joint:
                moved += 9e8 * np.roll(bursts, 2 * host)
            tx, rx = np.cumsum(moved / 10, axis=1).astype(np.int64)
            rows.append(
                pl.DataFrame(
                    {
                        "time_ns": np.arange(TICKS) * SECOND_NS // 10,
                        "host": f"h{host}",
                        "rail": rail,
                        "tx_bytes": tx,
                        "rx_bytes": rx,
                    }
                )
            )
    return pl.concat(rows)


def test_halves_that_only_read_storage_need_no_peer_of_their_rail() -> None:
    """The halves that exchange bytes are paired, across rails."""
    tasks = {
        "tasks": [{"task_id": "job", "rnics": [[f"h{h}", r] for h in (0, 1) for r in range(8)]}]
    }
    document = infer_table(_pipeline_of_two_hosts(), parse_meta(tasks))
    listed = {(tuple(row[:2]), tuple(row[2:])) for row in document["ping_list"]}
    for k in range(HALF):
        assert {(("h0", HALF + k), ("h1", k)), (("h1", k), ("h0", HALF + k))} & listed
