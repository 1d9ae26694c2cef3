"""Jobs found by their rhythm own whole hosts, or the same equal part of each."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from skeleton_job.job import Job, Rnic
from skeleton_job.offline.ownership import with_whole_hosts

RAILS = 8


def rnic(host: int, rail: int) -> Rnic:
    """Return an RNIC of a table."""
    return Rnic(f"h{host}/r{rail}", f"h{host}", f"h{host}", rail)


def job(places: list[tuple[int, int]], name: str = "task0") -> Job:
    """Return a job of RNICs, 8 GPUs a host."""
    hosts = {h for h, _ in places}
    return Job(task_id=name, rnics=tuple(rnic(*p) for p in places), gpus=8 * len(hosts))


def seats(made: Job) -> set[tuple[str, int]]:
    """Return where the RNICs of a job are."""
    return {(r.host, r.rail) for r in made.rnics}


def grid(hosts: range, rails: range = range(RAILS)) -> list[tuple[int, int]]:
    """Return all RNICs of these hosts and rails."""
    return [(h, r) for h in hosts for r in rails]


WHOLE = job(grid(range(8)))


def test_a_strange_rnic_belongs_to_its_host() -> None:
    """One that looks like another job, or like none, is the host's."""
    first = [p for p in grid(range(4)) if p not in {(0, 7), (1, 3)}]
    second = [*grid(range(4, 8)), (0, 7)]
    one, other = with_whole_hosts(WHOLE, [job(second, "b"), job(first, "a")])
    assert seats(one) == seats(job(grid(range(4, 8))))
    assert seats(other) == seats(job(grid(range(4))))
    assert (one.gpus, other.gpus) == (32, 32)


def test_jobs_that_share_hosts_evenly_stay() -> None:
    """Half of each host: the same on all hosts, so it is no accident."""
    halves = [job(grid(range(8), range(4)), "a"), job(grid(range(8), range(4, 8)), "b")]
    found = with_whole_hosts(WHOLE, halves)
    assert [seats(f) for f in found] == [seats(h) for h in halves]


def test_an_uneven_part_of_every_host_is_no_job() -> None:
    """Seven RNICs and one: a rail that looks different, in one job."""
    parts = [job(grid(range(8), range(7)), "a"), job(grid(range(8), range(7, 8)), "b")]
    (found,) = with_whole_hosts(WHOLE, parts)
    assert seats(found) == seats(WHOLE)


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, None]), min_size=64, max_size=64))
def test_no_rnic_is_in_two_jobs_and_hosts_are_whole_or_shared_evenly(
    labels: list[int | None],
) -> None:
    """Whatever the rhythm said of each RNIC."""
    every = grid(range(8))
    named = {
        n: [p for p, label in zip(every, labels, strict=True) if label == n] for n in (0, 1, 2)
    }
    parts = [job(places, f"job{n}") for n, places in named.items() if places]
    found = with_whole_hosts(WHOLE, parts)
    owners = Counter(r for made in found for r in made.rnics)
    assert set(owners.values()) <= {1}
    if len(parts) > 1:
        for made in found:
            shares = Counter(r.host for r in made.rnics)
            assert len(shares) > 1
            assert all(RAILS % share == 0 for share in shares.values())
