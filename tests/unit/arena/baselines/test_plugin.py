"""Accusations over windows as verdicts."""

from arena.baselines.observing import Network, Window
from arena.baselines.plugin import Accusation, VerdictBook
from schemas.enums import Layer
from schemas.units import SECOND_NS
from tests.unit.arena.baselines.made import network, window_from

NETWORK: Network = network()
LINK, OTHER = "link:leaf:s1-r0--spine:1", "link:leaf:s1-r0--spine:0"


def empty(number: int) -> Window:
    """Return window `number`, of 30 s."""
    return window_from([], number, seconds=30, within=NETWORK)


def accuse(component: str, *also: str, kind: str = "packet_loss", score: float = 1.0) -> Accusation:
    """Return an accusation."""
    return Accusation(component_id=component, kind=kind, score=score, also=also)


def book(*said: list[Accusation]) -> VerdictBook:
    """Return the book after what was said of windows 0, 1, ..."""
    found = VerdictBook("d")
    for number, accusations in enumerate(said):
        found.record_window(empty(number), accusations)
    return found


def test_the_same_component_in_consecutive_windows_is_one_verdict() -> None:
    """It counts from when the first window was had and says what was said last."""
    (one,) = book([], [accuse(LINK)], [accuse(LINK, kind="connectivity")]).verdicts()
    assert (one.opened_ns, one.kind, one.candidates) == (62 * SECOND_NS, "connectivity", (LINK,))
    assert one.decided
    assert one.pages
    assert one.layer is Layer.UNDERLAY


def test_one_window_without_does_not_end_it_two_do() -> None:
    """A fault that comes and goes is one; after two calm windows it is another."""
    assert len(book([accuse(LINK)], [], [accuse(LINK)]).verdicts()) == 1
    found = book([accuse(LINK)], [], [], [accuse(LINK)]).verdicts()
    assert [v.opened_ns // SECOND_NS for v in found] == [32, 122]
    assert [v.fault_id for v in found] == ["d-0", "d-1"]


def test_two_components_are_two_verdicts() -> None:
    """Also in the same window, also when one names the other."""
    assert len(book([accuse(LINK), accuse(OTHER)]).verdicts()) == 2
    assert len(book([accuse(LINK, OTHER), accuse(OTHER)]).verdicts()) == 2


def test_what_could_not_be_told_apart_and_then_can_be_is_one_verdict() -> None:
    """First undecided among two, then the other of them."""
    (one,) = book([accuse(OTHER, LINK)], [accuse(LINK)]).verdicts()
    assert (one.candidates, one.decided) == ((LINK,), True)
    (one,) = book([accuse(OTHER, LINK)]).verdicts()
    assert (one.candidates, one.decided) == ((OTHER, LINK), False)


def test_layers_come_from_the_topology_and_hosts_do_not_page() -> None:
    """Virtual switch, agent, and something nobody knows."""
    found = book([accuse("vswitch:h1"), accuse("agent-h1"), accuse("nobody")]).verdicts()
    assert {v.candidates[0]: (v.layer, v.pages) for v in found} == {
        "vswitch:h1": (Layer.OVERLAY, True),
        "agent-h1": (Layer.HOST, False),
        "nobody": (Layer.UNKNOWN, True),
    }
