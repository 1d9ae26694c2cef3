"""How long a rank worked while all others of a group waited, against asking each operation."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.groups import line_up
from localizer.collectives.slow_ranks import clock_offsets
from localizer.collectives.sole_work import sole_work
from schemas.enums import CollectiveState
from schemas.records import CollectiveOp, CollectiveSnapshot, CommunicatorProgress

GROUPS = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
# An iteration of a rank: its group of two, the other one, then all.
PROGRAM = (("1", "2"), ("3", "4"), ("1", "2"), ("0",))
BEGIN_US = 1_700_000_000_000_000
STEPS = 12


def run(
    seed: int, slow: int | None = None, extra_us: int = 0, transfer_us: dict[str, int] | None = None
) -> list[CollectiveSnapshot]:
    """Return four ranks that work for random times; `slow` up to so much longer.

    Some of their work is short, as in real jobs, which brings their clocks together.

    `transfer_us` is how long operations of a group take longer after the last launch.
    """
    random = Random(seed)
    free = [BEGIN_US] * 4
    held: list[list[CollectiveOp]] = [[], [], [], []]
    sequences = dict.fromkeys(GROUPS, 0)
    for _ in range(STEPS):
        for names in PROGRAM:
            for name in names:
                ranks = GROUPS[name]
                launched = {
                    r: free[r] + random.randrange(1_200 + (extra_us if r == slow else 0))
                    for r in ranks
                }
                end = max(launched.values()) + 20 + (transfer_us or {}).get(name, 0)
                for rank, at in launched.items():
                    held[rank].append(operation(name, sequences[name], len(held[rank]), at))
                    free[rank] = end
                sequences[name] += 1
    views = tuple(
        CommunicatorProgress(communicator=name, description="", ranks=ranks)
        for name, ranks in GROUPS.items()
    )
    return [
        CollectiveSnapshot(
            rank=rank, source="", library="gloo", version="2.10", taken_at=max(free),
            taken_at_missing_reason=None, dropped_before=0,
            communicators=tuple(v for v in views if rank in (v.ranks or ())),
            operations=tuple(ops),
        )
        for rank, ops in enumerate(held)
    ]  # fmt: skip


def operation(name: str, sequence: int, number: int, at: int) -> CollectiveOp:
    """Return an all-reduce that is done."""
    return CollectiveOp(
        communicator=name, operation="all_reduce", sequence=sequence, is_p2p=False,
        record_id=number, op_id=number, sender=None, receiver=None, input_sizes=((64,),),
        output_sizes=((64,),), input_dtypes=("Float",), output_dtypes=("Float",), n_bytes=256,
        launched_at=at, started_at=None, completed_at=None, missing_reason="gloo",
        state=CollectiveState.COMPLETED, retired=True, timeout_ms=1_800_000, stack=(),
    )  # fmt: skip


def asked(snapshots: list[CollectiveSnapshot]) -> dict[tuple[int, int], int]:
    """Return by rank and record how long it alone was waited for, operation by operation."""
    offsets = clock_offsets(snapshots, line_up(snapshots, range(4)))

    def at(rank: int, op: CollectiveOp) -> float:
        return (op.launched_at or 0) - offsets[rank]

    found = {}
    for snapshot in snapshots:
        for before, op in pairwise(snapshot.operations):
            others = [
                at(s.rank, o)
                for s in snapshots
                for o in s.operations
                if s is not snapshot
                and (o.communicator, o.sequence) == (op.communicator, op.sequence)
            ]
            went_on = [
                at(s.rank, later)
                for s in snapshots
                for o, later in pairwise(s.operations)
                if (o.communicator, o.sequence) == (before.communicator, before.sequence)
            ]
            alone = at(snapshot.rank, op) - max(*others, *[min(went_on)])
            found[snapshot.rank, op.record_id] = round(max(0.0, alone))
    return found


@given(st.integers(0, 2**32), st.sampled_from([None, 0, 3]), st.integers(0, 5_000))
def test_equals_asking_each_operation(seed: int, slow: int | None, extra_us: int) -> None:
    """Of the launches up to which all ranks are known."""
    snapshots = run(seed, slow, extra_us)
    expected = asked(snapshots)
    found = sole_work(snapshots, line_up(snapshots, range(4)))
    told = {(rank, w.record_id): w.sole for rank, held in found.items() for w in held}
    assert len(told) > 4 * (STEPS - 2) * len(PROGRAM) // 2
    assert told == {key: expected[key] for key in told}


def test_a_rank_that_works_longer_has_most() -> None:
    """Ranks of another group do not wait for it, and are not held against it."""
    snapshots = run(5, slow=2, extra_us=9_000)
    found = sole_work(snapshots, line_up(snapshots, range(4)))
    sums = {rank: sum(w.sole for w in held) for rank, held in found.items()}
    assert sums[2] > 4 * max(us for rank, us in sums.items() if rank != 2)


def test_a_slow_transfer_is_nobodys_work() -> None:
    """The ranks that took part are late together, and those that meet them wait for the network."""
    snapshots = run(6, transfer_us={"3": 5_000})
    found = sole_work(snapshots, line_up(snapshots, range(4)))
    for held in found.values():
        assert max(w.sole for w in held) < 1_200
