"""Sources of evidence for tests."""

from localizer.facts.anomalies import OpenAnomalies
from localizer.facts.inputs import Sources
from localizer.facts.liveness import Liveness
from localizer.facts.overlay import FlowTables
from localizer.facts.roster import Roster
from localizer.facts.self_reports import SelfReports
from localizer.facts.states import StateBook
from localizer.facts.stray_losses import StrayLosses
from localizer.network.paths import PathBook
from localizer.network.topology import Topology


def sources(topology: Topology) -> Sources:
    """Return empty sources over a topology."""
    liveness = Liveness()
    return Sources(
        topology=topology,
        tables=FlowTables(topology),
        paths=PathBook(topology),
        roster=Roster(),
        liveness=liveness,
        anomalies=OpenAnomalies(),
        strays=StrayLosses(),
        weak_latencies=OpenAnomalies(),
        brief_latencies=OpenAnomalies(),
        states=StateBook(),
        reports=SelfReports(liveness.agents),
    )
