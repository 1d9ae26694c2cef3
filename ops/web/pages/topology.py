"""Topology: the neighbourhood of a fault, with the paths through what is suspected."""

from collections import Counter
from typing import Final

from ops.view.cluster import ClusterView
from ops.view.faults import FaultHistory
from ops.view.neighbourhood import Crossing, Neighbourhood, Node, neighbourhood
from ops.web.pages.page import Document, Page, Params, UnknownItemError, without_none
from schemas.enums import ComponentKind

# A fault's paths change with the next anomaly; to follow all of them takes some tenths of a second.
LEAST_GAP_S: Final = 2.0
SHOWN_PATHS: Final = 20
SHOWN_FAULTS: Final = 50
# Time moves in steps: a document that only grew older is no change.
STEP_MS: Final = 5_000


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return what is around a fault: parameter `fault`, else the latest that is open, or was.

    Raises
    ------
    UnknownItemError
        If there is no such fault.
    """
    history = _fault(view, params.get("fault"))
    network = _network(view)
    if history is None:
        return {"network": network, "faults": {}}
    found = neighbourhood(view, history, (now_ms // STEP_MS + 1) * STEP_MS)
    last = history.last
    bad = sum(c.bad for c in found.crossings)
    return {
        "network": network,
        "faults": {h.last.fault_id: h.last.component_id for h in view.faults.open()[:SHOWN_FAULTS]},
        "fault": {
            "id": last.fault_id,
            "component": last.component_id,
            "kind": last.fault_kind,
            "severity": last.severity,
            "summary": last.summary,
            "open": history.open,
            "decided": last.decided,
        },
        "suspects": {
            str(place): without_none(
                {
                    "name": suspect.name,
                    "kind": suspect.kind.lower() or "component",
                    "accused": suspect.accused,
                    "score": None if suspect.score is None else round(suspect.score, 3),
                    "bad": suspect.bad,
                    "good": suspect.good,
                }
            )
            for place, suspect in enumerate(found.suspects)
        },
        "drawn": found.drawn,
        "nodes": {key: _node(key, node) for key, node in found.nodes.items()},
        "edges": _edges(found),
        "paths": _paths(view, found.crossings),
        "bad": bad,
        "good": len(found.crossings) - bad,
    }


def _fault(view: ClusterView, fault_id: str | None) -> FaultHistory | None:
    if fault_id is None:
        # What was over last says more than nothing.
        return next(iter([*view.faults.open(), *view.faults.over()]), None)
    history = view.faults.get(fault_id)
    if history is None:
        raise UnknownItemError(
            f"no fault {fault_id!r} is known here",
            "choose one on the page Now, or look without one",
        )
    return history


def _network(view: ClusterView) -> Document:
    """Count what the topology holds."""
    kinds = Counter(one.kind for one in view.topology.values())
    return {kind.value.lower(): number for kind, number in sorted(kinds.items())}


def _node(key: str, node: Node) -> Document:
    return {
        "name": node.name,
        # Whether it stands for itself, or for several.
        "group": key != node.name,
        "place": node.place.value,
        "suspect": node.suspect,
        "members": len(node.members),
    }


def _edges(found: Neighbourhood) -> Document:
    suspects = {suspect.name for suspect in found.suspects}
    return {
        str(place): without_none(
            {
                "a": edge.a,
                "b": edge.b,
                "links": len(edge.links),
                "link": min(edge.links) if len(edge.links) == 1 else None,
                "suspect": not suspects.isdisjoint(edge.links),
                "bad": edge.bad,
                "good": edge.good,
            }
        )
        for place, edge in enumerate(found.edges)
    }


def _paths(view: ClusterView, crossings: tuple[Crossing, ...]) -> Document:
    """Return the first bad and the first good paths, with the switches that they cross."""
    shown = [
        c for bad in (True, False) for c in [x for x in crossings if x.bad is bad][:SHOWN_PATHS]
    ]
    return {
        str(place): {
            "src": c.flow[0],
            "dst": c.flow[1],
            "flow": c.flow[2],
            "bad": c.bad,
            "traced": c.path.trace is not None,
            "via": [n for n in c.path.route if _kind(view, n) is ComponentKind.SWITCH],
        }
        for place, c in enumerate(shown)
    }


def _kind(view: ClusterView, name: str) -> ComponentKind | None:
    part = view.topology.get(name)
    return None if part is None else part.kind


TOPOLOGY: Final = Page(name="topology", document=document, least_gap_s=LEAST_GAP_S)
