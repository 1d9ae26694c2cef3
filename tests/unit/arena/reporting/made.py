"""Results of two diagnosers on three scenarios: one is always right, the other hardly ever."""

from typing import Final

from arena.faults.truth import TrueFault, Verdict
from arena.reporting.results import Result
from arena.scoring import Case
from schemas.enums import Layer
from schemas.units import SECOND_NS


def fault(number: int, kind: str, *, hard: bool = True, also: str | None = None) -> TrueFault:
    """Return a fault at `a` or `b`, which nobody can tell apart."""
    return TrueFault(
        fault_id=f"f{number}", kind=kind, layer=Layer.UNDERLAY, components=frozenset({"a", "b"}),
        begin_ns=100 * SECOND_NS, end_ns=200 * SECOND_NS, hard=hard,
        also_kinds=frozenset({also} if also else ()),
    )  # fmt: skip


def verdict(*candidates: str, kind: str, at_s: int = 110) -> Verdict:
    """Return a verdict."""
    return Verdict(
        fault_id=f"v{at_s}", kind=kind, layer=Layer.UNDERLAY, candidates=candidates,
        opened_ns=at_s * SECOND_NS, decided=len(candidates) == 1, pages=True,
    )  # fmt: skip


def result(diagnoser: str, name: str, faults: list[TrueFault], *said: Verdict) -> Result:
    """Return a result."""
    case = Case(
        name=name,
        faults=tuple(faults),
        verdicts=said,
        duration_ns=3600 * SECOND_NS,
        probes=1_000_000,
    )
    return Result(diagnoser=diagnoser, seed=7, case=case)


CUT, CRC = fault(1, "port_down", also="connectivity"), fault(2, "crc_error", hard=False)
OTHER: Final = "other <b>"
RESULTS: Final = [
    result("ours", "calm", []),
    result("ours", "one", [CUT], verdict("a", kind="connectivity")),
    result("ours", "two", [CRC], verdict("b", kind="crc_error", at_s=140)),
    result(OTHER, "calm", [], verdict("x", kind="packet_loss")),
    result(OTHER, "one", [CUT], verdict("c", "d", "e", "f", kind="packet_loss", at_s=150)),
    result(OTHER, "two", [CRC]),
]
