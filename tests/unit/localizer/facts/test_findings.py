"""What is out of order by states, and which components it is near."""

from hypothesis import given
from hypothesis import strategies as st

from localizer.facts.findings import Findings
from localizer.facts.overlay import FlowTables
from localizer.facts.states import StateBook
from schemas.enums import AnomalyFamily, ComponentKind
from schemas.ids import state_id
from schemas.records import ComponentState
from tests.unit.localizer.made import component, small_fabric

FABRIC = small_fabric(spines=2)
FABRIC.set_component(component("l0--s0#2", ComponentKind.LINK, a="s0", b="l0", addresses=()))
NAMES = sorted(each.component_id for each in FABRIC)


def near(name: str) -> set[str]:
    """Return a component, the cables of a switch, or a cable's switches and parallel cables."""
    if FABRIC.kind(name) is ComponentKind.SWITCH:
        return {name, *(each for each in NAMES if name in FABRIC.ends(each))}
    ends = FABRIC.ends(name)
    parallel = (each for each in NAMES if ends and {*FABRIC.ends(each)} == {*ends})
    switches = (each for each in ends if FABRIC.kind(each) is ComponentKind.SWITCH)
    return {name, *switches, *parallel}


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_what_is_near_a_finding_is_marked(down: set[str], asked: set[str]) -> None:
    """The slow twin looks around each component that is asked for."""
    states = StateBook()
    for name in sorted(down):
        states.set_state(
            ComponentState(
                cluster="c", state_id=state_id(name, "port_state"), component_id=name,
                attribute="port_state", text="down", changed_at=1, observed_at=1, source="t",
            ),
            1000,
        )  # fmt: skip
    found = Findings(FABRIC, states, FlowTables(FABRIC))
    assert found.marked(asked, AnomalyFamily.LOSS) == {n for n in asked if near(n) & down}
    assert not found.marked(asked, AnomalyFamily.LATENCY)
