"""Groups whose members no dump names: who belongs to them, and who is missing."""

import json

import pytest

from localizer.collectives.groups import line_up, unseen_ranks
from probers.collectives.flight_recorder import read_dump
from schemas.records import CollectiveSnapshot
from tests.flight_recorder import Rank

# Tensor- and data-parallel groups of six ranks.
GROUPS = {
    "1": ("tp", [0, 1]), "2": ("tp", [2, 3]), "3": ("tp", [4, 5]),
    "4": ("dp", [0, 2, 4]), "5": ("dp", [1, 3, 5]),
}  # fmt: skip


def snapshots(*ranks: int, **other: tuple[str, list[int]]) -> list[CollectiveSnapshot]:
    """Return what these ranks recorded over gloo, each one operation in each of its groups."""
    found = []
    for number in ranks:
        groups = {name: (kind, held) for name, (kind, held) in {**GROUPS, **other}.items()}
        rank = Rank(number, {name: held for name, (_, held) in groups.items()})
        for name in rank.groups:
            rank.launch(name)
        document = rank.document() | {"pg_config": {}}
        for entry in document["entries"]:
            name = entry["process_group"][0]
            entry["process_group"] = [name, groups[name][0]]
            entry["profiling_name"] = "gloo:all_reduce"
        found.append(read_dump(json.dumps(document).encode(), f"d{number}").snapshot)
    return found


def test_a_rank_without_a_dump_may_belong_to_the_groups_that_are_too_small() -> None:
    """Others are whole."""
    groups = {g.name: g for g in line_up(snapshots(0, 1, 2, 4, 5), range(6))}
    assert {name for name, group in groups.items() if group.possible} == {"2", "5"}
    assert groups["2"].members == (2,)
    assert groups["2"].possible == (3,)
    assert all(group.inferred for group in groups.values())


def test_members_that_are_given_are_believed() -> None:
    """And no others are possible."""
    given = {"2": [2, 3]}
    groups = {g.name: g for g in line_up(snapshots(0, 1, 2, 4, 5), range(6), given)}
    assert (groups["2"].members, groups["2"].possible) == ((2, 3), ())
    assert not groups["2"].inferred


@pytest.mark.parametrize(
    ("present", "unseen"),
    [((0, 1, 2, 3, 4, 5), 0), ((0, 1, 2, 3, 4), 1), ((0, 1, 3, 4, 5), 0), ((0, 1, 2, 3), 0)],
)
def test_last_ranks_are_missed_where_groups_of_two_kinds_lack_as_many(
    present: tuple[int, ...], unseen: int
) -> None:
    """A rank in the middle is a gap already; a whole group that is missing is not seen."""
    assert unseen_ranks(snapshots(*present)) == unseen


def test_groups_that_are_uneven_by_design_miss_nobody() -> None:
    """Their sizes differ, those of the others do not."""
    uneven = {"8": ("ep", [0, 1, 2]), "9": ("ep", [3])}
    assert unseen_ranks(snapshots(0, 1, 2, 3, 4, 5, **uneven)) == 0
