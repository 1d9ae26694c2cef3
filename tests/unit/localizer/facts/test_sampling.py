"""A sample is of the 5-tuples alone, as many as are needed, and whole pairs."""

from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.sampling import MOST, Sample, sample_of
from schemas.ids import FlowId
from tests.hash_seeds import printed


def flows(count: int, each: int = 1) -> set[FlowId]:
    """Return the 5-tuples of so many pairs, alike as a cluster's names are."""
    return {
        (f"ep:node{n // 64}-r{n % 8}", f"ep:node{n % 97}-r{n % 8}", 49_152 + flow)
        for n in range(count)
        for flow in range(each)
    }


def taken(sample: Sample) -> set[FlowId]:
    """Return what is looked at."""
    return {key for _, key in sample}


def test_all_are_looked_at_unless_there_are_very_many() -> None:
    """Each stands for itself."""
    keys = flows(MOST)
    assert sample_of(keys, [flows(10)]) == Sample(((1, keys),))


@given(count=st.integers(MOST + 1, 6 * MOST), known=st.integers(0, 3 * MOST))
def test_each_is_looked_at_or_left_out_and_the_sample_stands_for_about_all(
    count: int, known: int
) -> None:
    """Of what decided faults account for, and of the others, no more than half again as many."""
    keys = flows(count)
    accounted = flows(known)
    sample = sample_of(keys, [accounted])
    assert taken(sample) | set(sample.left_out) == keys
    assert taken(sample).isdisjoint(sample.left_out)
    for part in (keys & accounted, keys - accounted):
        mine = taken(sample) & part
        stands_for = sum(rate for rate, key in sample if key in part)
        assert len(mine) <= 1.5 * MOST
        assert abs(stands_for - len(part)) <= 0.25 * len(part) + 0.1 * MOST


def test_a_small_fault_beside_what_is_accounted_for_is_whole() -> None:
    """However many the large one hits."""
    keys, small = flows(20_000), {("a", "b", n) for n in range(50)}
    sample = sample_of(keys | small, [keys])
    assert small <= taken(sample)
    assert {rate for rate, key in sample if key in small} == {1}


def test_what_is_in_two_parts_is_looked_at_once() -> None:
    """With the first; what is in none is whole."""
    old, new = flows(6_000), {("a", "b", n) for n in range(50)}
    first = flows(4_000)
    sample = sample_of(old | new, [first, old])
    assert [len(set(keys) & new) for _, keys in sample.parts] == [0, 0, 50]
    assert [set(keys) <= first for _, keys in sample.parts[:2]] == [True, False]
    assert sorted([*taken(sample), *sample.left_out]) == sorted(old | new)


def test_what_is_looked_at_stays_so_while_others_come() -> None:
    """Of more than can be looked at at one rate those at the next one are some of them."""
    few, many = taken(sample_of(flows(4_000))), taken(sample_of(flows(12_000)))
    still = many & flows(4_000)
    assert still
    assert still <= few


def test_the_5_tuples_of_a_pair_stay_together() -> None:
    """A loss test flags them together, and they count as one."""
    keys = flows(3_000, each=3)
    pairs = {key[:2] for key in taken(sample_of(keys))}
    assert {key for key in keys if key[:2] in pairs} == taken(sample_of(keys))


@given(pairs=st.integers(1, 40), first=st.integers(0, 10_000))
def test_some_of_a_few_pairs_are_looked_at(pairs: int, first: int) -> None:
    """Of an agent that reports thousands of each, a sample of whole pairs must not be empty."""
    keys = {
        (f"job1-w{first}/r0", f"job1-w{first + 1 + n}/r{n % 8}", port)
        for n in range(pairs)
        for port in range(20_000 // pairs)
    }
    assert len(taken(sample_of(keys))) >= MOST // 4


def test_another_process_looks_at_the_same() -> None:
    """A replay decides what was decided live."""
    code = (
        "from tests.unit.localizer.facts.test_sampling import flows, taken;"
        "from localizer.facts.sampling import sample_of;"
        "print(sorted(taken(sample_of(flows(5_000)))))"
    )
    found = printed(code)
    assert found == {f"{sorted(taken(sample_of(flows(5_000))))}\n"}
