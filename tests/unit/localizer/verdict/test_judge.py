"""From when on an agent must have lived for the network to be blamed."""

from types import SimpleNamespace
from typing import cast

from localizer.facts.anomalies import Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.verdict.cases import Case
from localizer.verdict.judge import agents_must_live_since
from schemas.enums import AnomalyKind
from schemas.units import SECOND_NS
from tests.unit.localizer.made import START


def bad(number: int, kind: AnomalyKind, at_s: int) -> BadFlow:
    """Return a 5-tuple that is cut off, or loses packets, since a time."""
    onset_ns = START + at_s * SECOND_NS
    symptom = Symptom(
        kind=kind, agent_id="a", onset_ns=onset_ns, onset_at=onset_ns // 1000,
        seen_ns=onset_ns + SECOND_NS, last_ns=onset_ns + SECOND_NS, sent=9, lost=3, rtt_ns=None,
        baseline_ns=None, host_delay_ns=None,
    )  # fmt: skip
    return BadFlow(
        key=("e0", "e1", number), symptoms=(symptom,), components=("vsw",), prober="a",
        responder="b", open=True,
    )  # fmt: skip


def test_an_agent_that_restarts_did_not_live_because_some_packets_were_lost_before() -> None:
    """Two 5-tuples to a starved host lose packets for a minute; then the agent is restarted."""
    lossy = [bad(n, AnomalyKind.LOSS, 0) for n in range(2)]
    cut = [bad(10 + n, AnomalyKind.CONNECTIVITY, 60) for n in range(8)]
    both = cast(Case, SimpleNamespace(open=(*lossy, *cut)))
    assert agents_must_live_since(both) == cut
    only = cast(Case, SimpleNamespace(open=(*lossy, cut[0])))
    assert agents_must_live_since(only) == (*lossy, cut[0])
