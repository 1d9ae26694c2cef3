"""Any bytes are a dump or an error in a sentence: nothing runs, nothing else is raised."""

import copy
import json
import pickle
import pickletools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from localizer.collectives.diagnosis import diagnose
from ops.jobs.hang_report import as_document, as_text
from probers.collectives.flight_recorder import DumpError, read_dump
from probers.collectives.plain_pickle import PickleError, load_plain
from tests.flight_recorder import MESH, Rank

ONE = (
    Rank(2, MESH)
    .launch("0", sizes=[[4, 256], []])
    .launch("0", "send 2->1", p2p=True, state="started")
    .launch("2", state="started")
)
PICKLE = ONE.pickled()
JSON = ONE.json()
CALLS = {
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX",
    "PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4",
}  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.binary(max_size=3), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers()),
)  # fmt: skip


def use(content: bytes) -> None:
    """Read a dump and judge it; no error but the reader's own is raised."""
    try:
        dump = read_dump(content, "dump_2", taken_at=1_760_000_001_000_000)
    except DumpError:
        return
    found = diagnose([dump.snapshot])
    assert list(as_text(found))
    json.dumps(as_document(found))


@given(st.data())
def test_a_mutated_or_truncated_dump_is_a_result_or_a_sentence(data: st.DataObject) -> None:
    """Bytes are changed, put in, taken out, and the end is cut off."""
    content = bytearray(data.draw(st.sampled_from([PICKLE, JSON])))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["change", "insert", "delete"])):
            case "change":
                content[place] = data.draw(st.integers(0, 255))
            case "insert":
                content[place:place] = data.draw(st.binary(max_size=4))
            case _:
                del content[place : place + data.draw(st.integers(1, 40))]
    use(bytes(content[: data.draw(st.integers(0, len(content)))]))
    use(bytes(content))


@given(st.binary(max_size=60))
def test_a_pickle_is_read_as_pickle_reads_it_or_refused(content: bytes) -> None:
    """One with an opcode that calls something is refused before that."""
    content = b"\x80\x02" + content
    try:
        mine = load_plain(content)
    except PickleError:
        return
    codes = []
    for opcode, _, _ in pickletools.genops(content):
        codes.append(opcode.name)
    assert not CALLS.intersection(codes)
    # It holds plain values only, so that reading it runs nothing.
    assert repr(mine) == repr(pickle.loads(content))  # noqa: S301


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values in a document."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += places(inner, (*path, number))
    return found


PLACES = [path for path in places(ONE.document()) if path]


@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=3))
def test_a_value_of_another_kind_anywhere_is_a_result_or_a_sentence(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    """In a pickle that is whole."""
    document = copy.deepcopy(ONE.document())
    for path, value in changes:
        target: Any = document
        try:
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = value
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    use(pickle.dumps(document, protocol=2))
