"""Verdicts over documents in NCCL's form, each with one fault."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from localizer.collectives.diagnosis import Certainty, Diagnosis, HangClass, diagnose
from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import BEGIN_NS, MESH, Rank, job


def judge(ranks: Sequence[Rank], *, ring: int | None = None, timed_out: bool = True) -> Diagnosis:
    """Diagnose the dumps of some ranks, read as pickles."""
    if timed_out:
        for rank in ranks:
            rank.time_out()
    dumps = [read_dump(rank.pickled(ring=ring), f"dump_{rank.rank}") for rank in ranks]
    return diagnose([dump.snapshot for dump in dumps])


def test_a_rank_that_never_launched_is_named_alone() -> None:
    """The others have given up: that is sure without any clock."""
    ranks = job()
    for rank in (0, 1, 3):
        ranks[rank].launch("0", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.certainty) == (HangClass.NEVER_LAUNCHED, Certainty.SURE)
    assert (finding.ranks, finding.waiting) == ((2,), (0, 1, 3))
    assert (finding.group, finding.sequence) == ("0 (default_pg)", 6)
    assert finding.age.timed_out


def test_it_is_the_first_cause_over_all_groups_that_is_named() -> None:
    """Rank 3 hangs; 2 waits for it in one group, 0 for 2 in another, and 1 for both."""
    ranks = job(MESH)
    ranks[2].launch("2", state="started")
    ranks[0].launch("3", state="started")
    ranks[1].launch("4", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (3,))
    assert finding.waiting == (0, 1, 2)


def test_several_ranks_behind_in_one_place_are_one_finding() -> None:
    """Such as those of a host."""
    ranks = job()
    ranks[0].launch("0", state="started")
    (finding,) = judge(ranks).findings
    assert finding.ranks == (1, 2, 3)


def test_without_ages_a_running_job_cannot_be_told_from_a_hang() -> None:
    """The finding says so."""
    ranks = job()
    ranks[0].launch("0", state="started")
    (finding,) = judge(ranks, timed_out=False).findings
    assert finding.certainty is Certainty.LIKELY
    assert "a job that runs looks alike" in finding.doubts[0]


def test_what_all_launched_is_undecided_and_names_nobody() -> None:
    """The network is one of three candidates, not the default."""
    ranks = job()
    for rank in ranks:
        rank.launch("0", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.certainty, finding.ranks) == (
        HangClass.NOT_FINISHED, Certainty.UNDECIDED, (),
    )  # fmt: skip
    assert len(finding.candidates) == 3
    assert any("ss -tinp" in step for step in finding.next_steps)


def test_a_kernel_that_did_not_begin_points_to_what_is_before_it() -> None:
    """Rank 1's GPU has not begun what the others' GPUs wait in."""
    ranks = job()
    for rank in ranks:
        rank.launch("0", state="scheduled" if rank.rank == 1 else "started")
    (finding,) = judge(ranks).findings
    assert finding.hang_class is HangClass.NOT_FINISHED
    assert finding.candidates[0].startswith("work before it on the GPU of rank 1")


@pytest.mark.parametrize(
    ("operation", "sizes", "dtype", "said"),
    [
        ("all_reduce", [[512]], "BFloat16", "512"),
        ("all_reduce", [[1024]], "Float", "Float"),
        ("broadcast", [[1024]], "BFloat16", "broadcast"),
    ],
)
def test_the_odd_one_is_named(
    operation: str, sizes: list[list[int]], dtype: str, said: str
) -> None:
    """By size, type of number, or operation."""
    ranks = job()
    for rank in ranks:
        if rank.rank == 3:
            rank.launch("0", operation, sizes=sizes, dtype=dtype, state="started")
        else:
            rank.launch("0", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.certainty) == (HangClass.DESYNCHRONISED, Certainty.SURE)
    assert finding.ranks == (3,)
    assert said in finding.evidence[1]


def test_two_against_two_are_told_by_what_was_before() -> None:
    """An iteration repeats; without one before, all four are candidates."""
    for steps, odd in ((0, ()), (6, (2, 3))):
        ranks = job(steps=steps)
        for rank in ranks:
            rank.launch("0", sizes=[[7 if rank.rank > 1 else 1024]], state="started")
        (finding,) = judge(ranks).findings
        assert finding.hang_class is HangClass.DESYNCHRONISED
        assert finding.ranks == odd
        assert len(finding.candidates) == (0 if odd else 4)
        assert finding.certainty is (Certainty.LIKELY if odd else Certainty.UNDECIDED)
        assert any("may change here" in doubt for doubt in finding.doubts) == bool(odd)


@pytest.mark.parametrize("present", [3, 8])
def test_a_majority_of_few_is_not_sure(present: int) -> None:
    """Two of three agree; what the five others of the group do is not recorded."""
    ranks = [Rank(r, {"0": list(range(8))}) for r in range(present)]
    for rank in ranks:
        rank.launch("0")
        if rank.rank < 3:
            rank.launch("0", sizes=[[7 if rank.rank == 2 else 1024]], state="started")
    (finding,) = judge(ranks).findings
    assert (finding.ranks, finding.certainty) == ((2,), Certainty.LIKELY)
    assert any("2 of 8 ranks" in doubt for doubt in finding.doubts)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (["broadcast", "all_gather"], "opposite order"),
        (["broadcast"], "left one operation out"),
        (["barrier", "all_gather"], "one operation more"),
    ],
)
def test_how_it_came_about_is_told_where_operations_show_it(own: list[str], said: str) -> None:
    """The others do an all-gather, then a broadcast."""
    ranks = job()
    for rank in ranks:
        for operation in own if rank.rank == 1 else ["all_gather", "broadcast"]:
            rank.launch("0", operation, state="started")
    (finding,) = judge(ranks).findings
    assert finding.ranks == (1,)
    assert any(said in fact for fact in finding.evidence)


def test_the_pair_of_an_all_to_all_that_disagrees_is_named() -> None:
    """Rank 2 sends 9 rows to rank 1, which expects 8."""
    ranks = job()
    for rank in ranks:
        sent = [[9 if (rank.rank, other) == (2, 1) else 8, 4] for other in range(4)]
        rank.launch("0", "all_to_all", sizes=sent, outputs=[[8, 4]] * 4, state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.DESYNCHRONISED, ())
    assert finding.candidates == ("rank 1", "rank 2")
    assert "rank 2 → rank 1" in finding.evidence[-1]


def test_an_all_to_all_of_unequal_splits_that_fit_is_no_fault() -> None:
    """As of experts: totals differ from rank to rank, and agree in sum."""
    ranks = job()
    for rank in ranks:
        rank.launch(
            "0", "all_to_all", sizes=[[5 + rank.rank, 4]], outputs=[[8 - rank.rank, 4]],
            state="started",
        )  # fmt: skip
    (finding,) = judge(ranks).findings
    assert finding.hang_class is HangClass.NOT_FINISHED


def test_uneven_all_gathers_are_no_fault() -> None:
    """Inputs may differ; the outputs are alike."""
    ranks = job()
    outputs = [[1], [2], [3], [4]]
    for rank in ranks:
        rank.launch("0", "all_gather", sizes=[outputs[rank.rank]], outputs=outputs, state="started")
    (finding,) = judge(ranks).findings
    assert finding.hang_class is HangClass.NOT_FINISHED


def test_a_missing_dump_is_evidence_and_less_than_sure() -> None:
    """The size of the job comes from the others."""
    ranks = job()
    for rank in ranks:
        rank.launch("0", state="started")
    (finding,) = judge(ranks[:3]).findings
    assert (finding.hang_class, finding.certainty) == (HangClass.MISSING_DUMP, Certainty.LIKELY)
    assert finding.ranks == (3,)


def test_a_rank_that_is_behind_explains_what_a_missing_dump_would() -> None:
    """It is named; the other is a doubt."""
    ranks = job()
    ranks[0].launch("0", state="started")
    ranks[1].launch("0", state="started")
    found = judge(ranks[:3])
    (finding,) = found.findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (2,))
    assert finding.certainty is Certainty.LIKELY
    assert any("rank 3" in doubt for doubt in finding.doubts)


def test_a_ring_that_lost_the_group_makes_it_less_sure() -> None:
    """Rank 2 may have launched what its ring no longer holds."""
    ranks = job(MESH, steps=1)
    for rank in ranks[2:]:
        for _ in range(4):
            rank.launch("2")
    for behind in (0, 1, 3):
        ranks[behind].launch("0", state="started")
    (finding,) = judge(ranks, ring=3).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (2,))
    assert finding.certainty is Certainty.LIKELY
    assert any("of rank 2 2 operations or more were lost" in doubt for doubt in finding.doubts)


def test_ranks_that_wait_for_each_other_in_a_circle_are_told() -> None:
    """Two groups in opposite order: nobody is behind."""
    groups = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [0, 1]}
    ranks = job(groups)
    ranks[0].launch("1", state="started")
    ranks[1].launch("2", state="started")
    (finding,) = judge(ranks).findings
    assert finding.hang_class is HangClass.DESYNCHRONISED
    assert finding.candidates == ("rank 0", "rank 1")
    assert finding.circle == (0, 1)


def test_a_send_that_nobody_receives_names_the_receiver() -> None:
    """Rank 1 waits for nothing itself."""
    ranks = job()
    ranks[0].launch("0", "send 0->1", p2p=True, state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.ranks, finding.waiting) == (
        HangClass.NEVER_LAUNCHED, (1,), (0,),
    )  # fmt: skip


def test_a_transfer_that_both_launched_is_undecided() -> None:
    """Or desynchronised, if their sizes differ; how many went before does not matter."""
    for size, expected in ((64, HangClass.NOT_FINISHED), (32, HangClass.DESYNCHRONISED)):
        ranks = job()
        for _ in range(3):
            ranks[1].launch("0", "recv 1<-2", p2p=True)
        ranks[0].launch("0", "send 0->1", sizes=[[64]], p2p=True, state="started")
        ranks[1].launch("0", "recv 1<-0", sizes=[[size]], p2p=True, state="started")
        (finding,) = judge(ranks).findings
        assert (finding.hang_class, finding.ranks) == (expected, ())


def test_parts_of_a_coalesced_launch_have_its_state() -> None:
    """Their own is `scheduled` for ever; the launch was completed."""
    ranks = job()
    for rank, name in ((0, "send 0->1"), (1, "recv 1<-0")):
        ranks[rank].launch("0", name, p2p=True, state="scheduled")
        ranks[rank].launch("0", "coalesced", sizes=[], p2p=True, same_launch=True)
    assert not judge(ranks, timed_out=False).findings


def test_nothing_hangs_where_all_is_done() -> None:
    """And no rank is called slow by NCCL's launches."""
    found = judge(job(steps=100))
    assert not found.findings
    assert not found.hangs
    assert found.slow_rank is None


def test_an_older_dump_of_a_running_job_makes_no_hang() -> None:
    """Rank 0 was dumped some operations earlier, and all that the others launched is done."""
    ranks = job()
    for rank in ranks[1:]:
        rank.launch("0").launch("0")
    assert not judge(ranks).findings


def test_groups_of_one_name_and_different_members_are_two() -> None:
    """As of groups that are split off one; each has its own sequences."""
    ranks = [Rank(r, {"0": [0, 1, 2, 3], "7": [0, 1] if r < 2 else [2, 3]}) for r in range(4)]
    for rank in ranks:
        for _ in range(3 if rank.rank < 2 else 1):
            rank.launch("7")
    assert not judge(ranks).findings
    ranks[0].launch("7", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.ranks, finding.waiting, finding.group) == ((1,), (0,), "7@0+2")


def test_what_was_given_up_is_no_usual_wait() -> None:
    """However long the pauses before were."""
    ranks = job()
    for rank in ranks:
        for entry in rank.entries[:1]:
            entry["time_created_ns"] -= 10**13
        if rank.rank != 1:
            rank.launch("0", state="started").time_out()
    taken_at = (BEGIN_NS + 600 * 10**9) // 1000
    dumps = [read_dump(rank.pickled(), f"d_{rank.rank}", taken_at=taken_at) for rank in ranks]
    (finding,) = diagnose([dump.snapshot for dump in dumps]).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (1,))


def test_ranks_that_a_mismatch_held_up_are_no_cause_of_their_own() -> None:
    """Rank 2 reduced another size, and launched nothing after; rank 3 waits for it elsewhere."""
    ranks = job(MESH)
    for rank in ranks:
        rank.launch("0", sizes=[[8 if rank.rank == 2 else 1024]], state="started")
    ranks[2].entries[-1]["state"] = "completed"
    ranks[3].launch("2", state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.DESYNCHRONISED, (2,))


def test_a_send_that_ended_is_no_send_that_never_was() -> None:
    """Its receiver waits: what was sent is on its way. A third would be sure to be missing."""
    ranks = job()
    for _ in range(2):
        ranks[0].launch("0", "send 0->1", p2p=True)
    ranks[1].launch("0", "recv 1<-0", p2p=True)
    ranks[1].launch("0", "recv 1<-0", p2p=True, state="started")
    (finding,) = judge(ranks).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NOT_FINISHED, ())
    assert "finished on rank 0" in finding.evidence
    ranks[1].entries[-1] |= {"state": "completed"}
    ranks[1].launch("0", "recv 1<-0", p2p=True, state="started")
    (finding,) = judge(ranks).findings
    assert (finding.ranks, finding.certainty) == ((0,), Certainty.SURE)


def test_transfers_that_a_ring_may_have_lost_are_not_sure() -> None:
    """Neither end can be counted."""
    ranks = job()
    ranks[1].launch("0", "recv 1<-0", p2p=True, state="started")
    (finding,) = judge(ranks, ring=3).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (0,))
    assert finding.certainty is Certainty.LIKELY


def test_a_rank_in_a_transfer_whose_other_end_is_unknown_is_not_surely_the_first() -> None:
    """Members of its group are in no dump."""
    ranks = job({"0": [0, 1, 2, 3], "7": [1, 2]})
    for rank in ranks:
        if rank.rank == 1:
            rank.launch("7", "recv 0<-1", p2p=True, state="started")
        else:
            rank.launch("0", state="started")
        rank.groups.pop("7", None)
    (finding,) = judge(ranks).findings
    assert (finding.ranks, finding.certainty) == ((1,), Certainty.LIKELY)
    assert any("itself waits in recv 1 of group 7" in doubt for doubt in finding.doubts)


def test_a_size_that_is_not_known_differs_from_none() -> None:
    """The width of a type may be unknown here."""
    ranks = job()
    ranks[0].launch("0", "send 0->1", p2p=True, state="started")
    ranks[1].launch("0", "recv 1<-0", dtype="Float4", p2p=True, state="started")
    (finding,) = judge(ranks).findings
    assert finding.hang_class is HangClass.NOT_FINISHED


def test_sequences_may_begin_at_0() -> None:
    """What is done there is finished."""
    ranks = job(steps=0)
    for rank in ranks:
        rank.launch("0", state="completed" if rank.rank == 0 else "started")
        rank.entries[0]["collective_seq_id"] = 0
    (finding,) = judge(ranks).findings
    assert any(fact.startswith("finished on rank 0, not on") for fact in finding.evidence)


def test_half_of_many_ranks_behind_are_judged_in_time() -> None:
    """A quarter of a million waits: a second, where each end was once looked for anew in 45 s."""
    count = 1000
    ranks = [Rank(r, {"0": list(range(count)) if r == 0 else [r]}) for r in range(count)]
    for rank in ranks:
        rank.launch("0")
        if rank.rank % 2:
            rank.launch("0", state="started").time_out()
    snapshots = [read_dump(rank.json(), f"d_{rank.rank}").snapshot for rank in ranks]
    for place, snapshot in enumerate(snapshots):
        views = snapshots[0].communicators
        snapshots[place] = replace(snapshot, communicators=views)
    begin = time.process_time()
    (finding,) = diagnose(snapshots).findings
    assert time.process_time() - begin < 15
    assert finding.ranks == tuple(range(0, count, 2))
    assert finding.waiting == tuple(range(1, count, 2))


def test_what_all_launched_waits_for_the_gpu_that_has_not_come_to_it() -> None:
    """All are far ahead of their GPUs: the first that one has not begun is where it ends."""
    ranks = job(MESH)
    pairs = {rank: next(g for g in ranks[rank].groups if g != "0") for rank in range(4)}
    for rank in ranks:
        # Rank 2's GPU does not come to the sum of its pair; its peer's has.
        begun = rank.rank != 2
        rank.launch(pairs[rank.rank], state="started" if begun else "scheduled")
        rank.launch("0", state="scheduled")
    first = judge(ranks, timed_out=False)
    again = diagnose([read_dump(r.pickled(), f"d{r.rank}").snapshot for r in ranks], overdue=True)
    for found in (first, again):
        named = [f for f in found.findings if f.unbegun == (2,)]
        assert len(named) == 1
        assert named[0].hang_class in {HangClass.NOT_FINISHED, HangClass.USUAL_WAIT}
        # The sum of all is not where it ends, for no GPU has come to it.
        assert all(not f.group.startswith("0 ") for f in found.findings)


def test_who_has_followed_the_job_says_what_is_usual() -> None:
    """Its own launches lie as far apart, and yet the rank waits too long."""
    ranks = job()
    for rank in ranks[:3]:
        rank.launch("0", state="started")
    snapshots = [read_dump(r.pickled(), f"d{r.rank}", taken_at=None).snapshot for r in ranks]
    last = max(o.launched_at or 0 for s in snapshots for o in s.operations)
    snapshots = [replace(s, taken_at=last + 1) for s in snapshots]
    assert diagnose(snapshots).findings[0].hang_class is HangClass.USUAL_WAIT
    (finding,) = diagnose(snapshots, overdue=True).findings
    assert (finding.hang_class, finding.ranks) == (HangClass.NEVER_LAUNCHED, (3,))
