"""A dump that is read again and again is read as far as it is new."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probers.collectives.flight_recorder import read_dump
from tests.flight_recorder import WORLD, Rank


def entries(numbers: list[int], thread: str) -> list[dict[str, Any]]:
    """Return operations with these numbers, as JSON has them."""
    rank = Rank(0, WORLD)
    for _ in numbers:
        rank.launch("0")
    held: list[dict[str, Any]] = json.loads(rank.json())["entries"]
    return [
        {**entry, "record_id": number, "thread_name": thread}
        for number, entry in zip(numbers, held, strict=True)
    ]


@given(
    numbers=st.lists(st.integers(0, 30), unique=True, max_size=12).map(sorted),
    known=st.sets(st.integers(0, 30)),
    name=st.sampled_from(["python", 'a"},{"record_id":4', "},{", '{"entries":[']),
    spaces=st.booleans(),
)
def test_to_leave_out_what_is_known_is_to_read_all_and_drop_it(
    numbers: list[int], known: set[int], name: str, spaces: bool
) -> None:
    """JSON that is cut says what the whole of it says, whatever texts of the job are in it."""
    document = {"version": "2.10", "entries": entries(numbers, name), "pg_config": {}}
    separators = None if spaces else (",", ":")
    content = json.dumps(document, separators=separators).encode()
    whole = read_dump(content, "rank0")
    part = read_dump(content, "rank0", skip=known.__contains__)
    last = max(numbers, default=-1)
    assert part.highest_record_id == whole.highest_record_id
    assert part.snapshot.dropped_before == whole.snapshot.dropped_before
    assert part.snapshot.library == whole.snapshot.library
    assert part.snapshot.operations == tuple(
        o for o in whole.snapshot.operations if o.record_id not in known or o.record_id == last
    )
