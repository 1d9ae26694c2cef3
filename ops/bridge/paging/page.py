"""A page: one thing that people are told of, a fault or a storm of faults."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ops.bridge.paging.labels import (
    COMPONENT,
    COMPONENT_KIND,
    KIND,
    LAYER,
    SEVERITY,
    TASK,
    Owner,
    joined_tasks,
    owner_of,
    rank,
)
from schemas.records import FaultEvent

CLUSTER: Final = "cluster"
OWNER: Final = "owner"
STORM: Final = "storm"
SEVERAL: Final = "several"


class Action(StrEnum):
    """What a target is told of a page."""

    TRIGGER = "trigger"
    UPDATE = "update"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page as it is at one time.

    Attributes
    ----------
    page_id
        Id of its fault; of a storm `storm-` and the id of its first.
    labels
        As they were when it was triggered, or when its severity last rose: routers take a page
        with other labels for another page.
    faults
        Its faults, the first one first; of a page that ended those that it had at last.
    since_us
        When it was triggered.
    ended_us, end_reason
        When and why it ended; None: it has not.
    acknowledged_by
        Who said that they are at it; None: nobody.
    """

    page_id: str
    labels: Mapping[str, str]
    faults: tuple[FaultEvent, ...]
    since_us: int
    ended_us: int | None = None
    end_reason: str | None = None
    acknowledged_by: str | None = None

    @property
    def is_storm(self) -> bool:
        """Whether it stands for several faults."""
        return self.page_id.startswith(f"{STORM}-")

    @property
    def first(self) -> FaultEvent:
        """Its first fault, the only one unless it is a storm."""
        return self.faults[0]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Place of a notification among all that follow from the topics."""

    at_us: int
    number: int

    def __str__(self) -> str:
        return f"{self.at_us}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """Return the position that a text says, None if it says none."""
        at_us, _, number = text.partition(":")
        if not (at_us.isdecimal() and number.isdecimal()):
            return None
        return cls(int(at_us), int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Something that targets are to be told, in this order.

    Attributes
    ----------
    transition
        The record that it comes from, for targets that are told of each transition; None: of a
        page only, such as a silence that ends.
    page, action
        What people are told; None: nothing, such as of a transition that changes no page.
    silenced
        Whether the transition's fault is silenced.
    """

    position: Position
    transition: FaultEvent | None = None
    silenced: bool = False
    page: Page | None = None
    action: Action | None = None


def labels_of(fault: FaultEvent, owners: tuple[Owner, ...]) -> dict[str, str]:
    """Return the labels of a fault's page for the fault as it is now."""
    found = {
        CLUSTER: fault.cluster,
        COMPONENT: fault.component_id,
        COMPONENT_KIND: fault.component_kind,
        KIND: fault.fault_kind,
        LAYER: fault.layer.value,
        SEVERITY: fault.severity,
        TASK: joined_tasks(fault.tasks),
    }
    owner = owner_of(fault, owners)
    return found if owner is None else {**found, OWNER: owner}


def storm_labels(faults: tuple[FaultEvent, ...]) -> dict[str, str]:
    """Return the labels of a storm, which do not change with each fault that joins.

    It has no owner: what hits several is routed to whoever gets what is nobody's.
    """
    several = (COMPONENT, COMPONENT_KIND, LAYER, TASK)
    return {
        CLUSTER: faults[0].cluster,
        KIND: STORM,
        SEVERITY: max((fault.severity for fault in faults), key=rank),
        **dict.fromkeys(several, SEVERAL),
    }
