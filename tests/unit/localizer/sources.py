"""Sources of evidence for tests."""

from localizer.anomalies import AnomalyBoard
from localizer.liveness import Liveness
from localizer.paths import PathBook
from localizer.roster import Roster
from localizer.states import StateBook
from localizer.suspicion import Sources
from localizer.topology import Topology


def sources(topology: Topology) -> Sources:
    """Return empty sources over a topology."""
    return Sources(
        topology=topology,
        paths=PathBook(topology),
        roster=Roster(),
        liveness=Liveness(),
        board=AnomalyBoard(),
        states=StateBook(),
    )
