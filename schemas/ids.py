"""Names of things on the wire, and the one rule that builds a path id."""

from typing import NewType

PathId = NewType("PathId", str)

# A 5-tuple by its endpoints: source, destination, number of the flow between them. A stream
# worker's `FlowKey` has the agent that probes it in front.
FlowId = tuple[str, str, int]

PATH_SEPARATOR = ">"
STATE_SEPARATOR = "|"
# Longest id accepted from configuration; Kafka keys and file names stay small.
MAX_ID_CHARS = 256


def path_id(src: str, dst: str) -> PathId:
    """Return the id of the ordered pair of endpoints.

    >>> path_id("job1-w0/r0", "job1-w1/r0")
    'job1-w0/r0>job1-w1/r0'
    """
    return PathId(f"{src}{PATH_SEPARATOR}{dst}")


def state_id(component_id: str, attribute: str) -> str:
    """Return the id of an attribute of a component.

    >>> state_id("rnic:h0/r1", "port_state")
    'rnic:h0/r1|port_state'
    """
    return f"{component_id}{STATE_SEPARATOR}{attribute}"


def rank_id(task_id: str, rank: int) -> str:
    """Return the id of a rank of a training job.

    >>> rank_id("job1", 3)
    'job1|3'
    """
    return f"{task_id}{STATE_SEPARATOR}{rank}"


def rank_key(rank: str) -> tuple[str, int]:
    """Return the job and the number of a rank by its id, which also order ranks.

    What has no number comes before all of its job's, as −1.

    >>> rank_key("job1|3")
    ('job1', 3)
    """
    task_id, _, number = rank.rpartition(STATE_SEPARATOR)
    return task_id, int(number) if number.isascii() and number.isdecimal() else -1


def communicator_id(task_id: str, communicator: str) -> str:
    """Return the id of a communicator of a training job.

    >>> communicator_id("job1", "0")
    'job1|0'
    """
    return f"{task_id}{STATE_SEPARATOR}{communicator}"


def check_id(what: str, value: str) -> str:
    """Return `value` if it can serve as an id.

    Raises
    ------
    ValueError
        If it is empty, longer than 256 characters, or holds white space,
        a control character or the path separator.
    """
    if not value or len(value) > MAX_ID_CHARS:
        raise ValueError(f"{what} has {len(value)} characters; an id has 1 to {MAX_ID_CHARS}")
    bad = [c for c in value if c.isspace() or not c.isprintable() or c == PATH_SEPARATOR]
    if bad:
        raise ValueError(
            f"{what} {value!r} holds {bad[0]!r}; ids take no white space, control "
            f"characters or {PATH_SEPARATOR!r}"
        )
    return value
