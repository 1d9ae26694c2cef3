"""Why a real job is made to hang or to be slow, and when what is said of it is right. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from arena.world.topology import link_id
from ops.lab.shape import LabShape
from ops.lab.suite.recorded import QUEUE

# Each turn hits another rank: 3 and 8 have no common divisor.
NEXT_TURN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A fault of the lab, and the names under which it is told.

    `kinds` are the kinds of fault that the pipeline may rightly name, `classes` what the dumps
    of the ranks alone can say. One of the `network` is on the cable of the rank's RNIC, which
    dumps cannot name.
    """

    name: str
    kind: str
    kinds: tuple[str, ...]
    classes: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    network: bool = False


# A message that does not fit ends the process that gets it, often another rank's: what is seen
# then is a rank that is gone after it did something else, or because of it.
DESYNCHRONISED: Final = ("rank_desynchronised",)
LOST: Final = ("connectivity", "rnic_unreachable", "port_down")
CAUSES: Final = (
    Cause(
        name="rank stopped", kind="rank-stop", kinds=("rank_stopped",), classes=("missing_dump",)
    ),
    Cause(
        name="rank stalls", kind="rank-stall", kinds=("rank_never_launched",),
        classes=("never_launched",),
    ),
    Cause(
        name="rank slow", kind="rank-slow", params={"ms": 600.0}, kinds=("rank_slow",),
        classes=("slow_rank",),
    ),
    Cause(
        name="another size", kind="rank-desync", params={"how": "size"}, kinds=DESYNCHRONISED,
        classes=("desynchronised", "missing_dump"),
    ),
    Cause(
        name="another order", kind="rank-desync", params={"how": "order"}, kinds=DESYNCHRONISED,
        classes=("desynchronised", "missing_dump"),
    ),
    Cause(
        name="rank ends", kind="rank-exit", kinds=("rank_missing",), classes=("missing_dump",)
    ),
    Cause(
        name="cable cut", kind="link-cut", kinds=LOST, classes=("not_finished",), network=True,
    ),
    Cause(
        name="port shut", kind="link-down", kinds=LOST, classes=("not_finished",), network=True,
    ),
    Cause(
        name="half of all packets lost", kind="link-loss", params={"percent": 50.0},
        kinds=("packet_loss", *LOST), classes=("not_finished",), network=True,
    ),
    Cause(
        name="port of 2 Mbit/s", kind="link-rate", params={"mbit": 2.0},
        kinds=QUEUE, classes=("not_finished",), network=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a hang or of a fault: under which name, and of whom.

    `component_id` is None where only ranks can be named.
    """

    name: str
    ranks: tuple[int, ...] = ()
    component_id: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cause is put in: the rank, and what `lab fault` is told.

    `components` are those that may rightly be named.
    """

    rank: int
    target: str
    components: tuple[str, ...]


def place(cause: Cause, number: int, turn: int, shape: LabShape) -> Place:
    """Return where the cause of that number is put in that turn."""
    rank = (number + NEXT_TURN * turn) % len(shape.endpoints)
    e = shape.endpoints[rank]
    if cause.network:
        cable = link_id(e.rnic_id, shape.leaf_of(e.host, e.rail))
        # From the outside an RNIC and its only cable are one.
        return Place(rank, cable, (cable, e.rnic_id))
    rank_id = f"{shape.task_id}|{rank}"
    return Place(rank, rank_id, (rank_id,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one cause: `delay_s` is None where nothing was said."""

    cause: str
    target: str
    delay_s: float | None
    class_right: bool
    place_right: bool
    said: tuple[Said, ...]


def judged(
    cause: Cause, here: Place, said: Sequence[Said], delay_s: float | None, *, live: bool
) -> Outcome:
    """Hold what was said against the cause.

    It is right if one thing was said, under a right name and of the right rank or cable. Dumps
    name no cable: of a cause of the network they are right if they name no rank.
    """
    names = cause.kinds if live else cause.classes
    ranks = () if cause.network else (here.rank,)
    place_right = len(said) == 1 and (
        said[0].component_id in here.components if live else said[0].ranks == ranks
    )
    return Outcome(
        cause=cause.name,
        target=here.target,
        delay_s=delay_s,
        class_right=len(said) == 1 and said[0].name in names,
        place_right=place_right,
        said=tuple(said),
    )
