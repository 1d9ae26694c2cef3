"""Pairs across rails, for jobs of which some hosts use a part of their RNICs only.

Where a host holds several stages of a pipeline without replicas, only the first and last of them
send over the network; neighbours in the host do not. So RNICs of the job's first and last stage are
silent, and the last stage of a host talks to the first stage of another: on other rails.
"""

from collections.abc import Set
from itertools import combinations, pairwise
from typing import Final

from skeleton_job.job import Job, Pair, Rnic, ordered

# With more hosts only neighbours in the platform's order are paired: frameworks number stages in
# that order.
MAX_MESHED: Final = 4


def pairs_between_parts(job: Job, silent: Set[str]) -> set[Pair]:
    """Return the pairs of the last part of each host with the first part of another.

    Parameters
    ----------
    silent : endpoint ids that are seen to send nothing

    Returns
    -------
    Pairs of RNICs at the same place of their part; none if no host uses an equal part of its RNICs.
    """
    of_host: dict[str, list[Rnic]] = {}
    for rnic in job.ordered:
        of_host.setdefault(rnic.host, []).append(rnic)
    sizes = set()
    for rnics in of_host.values():
        heard = sum(r.endpoint_id not in silent for r in rnics)
        if 0 < heard < len(rnics):
            sizes.add(heard)
    if len(sizes) != 1:
        return set()
    size = sizes.pop()
    if any(len(rnics) % size for rnics in of_host.values()):
        return set()
    hosts = list(of_host)
    near = combinations(hosts, 2) if len(hosts) <= MAX_MESHED else pairwise(hosts)
    return {
        ordered(a.endpoint_id, b.endpoint_id)
        for pair in near
        for one, other in (pair, pair[::-1])
        for a, b in zip(of_host[one][-size:], of_host[other][:size], strict=True)
        if not {a.endpoint_id, b.endpoint_id} & silent
    }
