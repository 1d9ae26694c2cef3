"""Whether hosts send what they receive at any moment, as collectives do and pipelines do not.

This needs no iterations, so it says of a job whose window is too short for them that all its hosts
are in one stage.
"""

from typing import Final

import numpy as np

from skeleton_job.job import Job
from skeleton_job.series.rates import RateMatrix

# One-way share of the traffic: below for collectives, above for pipelines even beside large
# gradient sums (`skeleton_job.layout.confidence.ONE_WAY`).
BALANCED: Final = 0.01
# Samples in which all RNICs of a host were read.
MIN_SAMPLES: Final = 20


def hosts_are_balanced(job: Job, matrix: RateMatrix) -> bool:
    """Return whether each host sends what it receives, sample by sample; False: or not known.

    Parameters
    ----------
    matrix : rates of the job's RNICs, in any order
    """
    row_of = {endpoint: row for row, endpoint in enumerate(matrix.endpoints)}
    of_host: dict[str, list[int]] = {host: [] for host in job.hosts}
    for rnic in job.ordered:
        of_host[rnic.host].append(row_of[rnic.endpoint_id])
    net, both = 0.0, 0.0
    for rows in of_host.values():
        there = ~matrix.missing[rows].any(axis=0)
        if int(there.sum()) < MIN_SAMPLES:
            return False
        sent, got = (rates[rows].sum(axis=0)[there] for rates in (matrix.tx, matrix.rx))
        # Loading of data is steady in the mean.
        net += float(np.var(sent - got))
        both += float(((sent + got) ** 2).mean())
    return net <= BALANCED**2 * both
