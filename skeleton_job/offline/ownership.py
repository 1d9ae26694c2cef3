"""Whole hosts for the jobs that were told apart by their rhythm.

A scheduler gives a job whole hosts, or the same equal part of each (four of eight RNICs). An RNIC
whose rhythm looks foreign, or that shows none, so belongs to the job of its host, unless the jobs
share hosts in such parts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from skeleton_job.job import Job, Rnic

Rails = frozenset[int]


def with_whole_hosts(job: Job, parts: Sequence[Job]) -> list[Job]:
    """Return the parts of a job, each with all RNICs of the hosts that it owns.

    Parameters
    ----------
    job : all RNICs
    parts : jobs found among them, the largest first; none of their RNICs is in two

    Returns
    -------
    Those that are left on two hosts or more, the largest first. An RNIC of no part's host is in
    none.
    """
    if len(parts) < 2:
        return list(parts)
    on_host: dict[str, list[Rnic]] = {}
    for rnic in job.ordered:
        on_host.setdefault(rnic.host, []).append(rnic)
    claims: dict[str, dict[int, Rails]] = {}
    for number, part in enumerate(parts):
        for host, rails in _rails(part).items():
            claims.setdefault(host, {})[number] = rails
    usual = [Counter(_rails(part).values()).most_common(1)[0][0] for part in parts]
    members: list[list[Rnic]] = [[] for _ in parts]
    for host, claimed in claims.items():
        rnics = on_host[host]
        if all(_is_share(rails, usual[n], len(rnics)) for n, rails in claimed.items()):
            owned = claimed
        else:
            most = max(claimed, key=lambda n: (len(claimed[n]), -n))
            owned = {most: frozenset(r.rail for r in rnics)}
        for number, rails in owned.items():
            members[number] += [r for r in rnics if r.rail in rails]
    gpus = None if job.gpus is None else job.gpus / len(job.hosts)
    found = [
        replace(
            part,
            rnics=tuple(mine),
            gpus=None if gpus is None else round(sum(gpus / len(on_host[r.host]) for r in mine)),
        )
        for part, mine in zip(parts, members, strict=True)
        if len({r.host for r in mine}) > 1
    ]
    return sorted(found, key=lambda part: -len(part.rnics))


def _rails(job: Job) -> dict[str, Rails]:
    """Return the rails of a job on each of its hosts."""
    rails: dict[str, set[int]] = {}
    for rnic in job.ordered:
        rails.setdefault(rnic.host, set()).add(rnic.rail)
    return {host: frozenset(mine) for host, mine in rails.items()}


def _is_share(rails: Rails, usual: Rails, whole: int) -> bool:
    """Return whether a job has an equal part of a host, the same as on its other hosts."""
    return rails == usual and whole % len(rails) == 0
