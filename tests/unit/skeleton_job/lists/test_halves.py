"""Pairs across rails, for hosts that use a part of their RNICs."""

from skeleton_job.job import Job, Rnic
from skeleton_job.lists.halves import pairs_between_parts


def _job(hosts: int, rails: int = 8) -> Job:
    return Job(
        task_id="t",
        rnics=tuple(
            Rnic(endpoint_id=f"h{h}/r{r}", container_id=f"c{h}", host=f"h{h}", rail=r)
            for h in range(hosts)
            for r in range(rails)
        ),
    )


def test_the_last_part_of_a_host_meets_the_first_of_another() -> None:
    """Two hosts with two stages each: the middle ones talk to each other."""
    silent = {f"h0/r{r}" for r in range(4)} | {f"h1/r{r}" for r in range(4, 8)}
    pairs = pairs_between_parts(_job(2), silent)
    assert pairs == {(f"h0/r{r + 4}", f"h1/r{r}") for r in range(4)}


def test_all_hosts_busy_needs_no_pairs_across_rails() -> None:
    """Nor does a host that takes no part."""
    assert pairs_between_parts(_job(2), set()) == set()
    assert pairs_between_parts(_job(3), {f"h2/r{r}" for r in range(8)}) == set()


def test_a_broken_rnic_is_no_part() -> None:
    """Seven of eight RNICs are no equal part of a host."""
    assert pairs_between_parts(_job(2), {"h0/r3"}) == set()


def test_many_hosts_are_paired_along_the_order() -> None:
    """Otherwise the list would grow by the square."""
    silent = {f"h0/r{r}" for r in range(4)} | {f"h5/r{r}" for r in range(4, 8)}
    pairs = pairs_between_parts(_job(6), silent)
    assert all(abs(int(a[1]) - int(b[1])) == 1 for a, b in pairs)
    assert {(f"h{h}/r{r + 4}", f"h{h + 1}/r{r}") for h in range(5) for r in range(4)} <= pairs
