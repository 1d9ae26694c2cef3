"""Which agents lack CPU, and which losses that explains."""

from localizer.facts.anomalies import NO_LATE, LateCount, Symptom
from localizer.facts.bad_flows import BadFlow
from localizer.inference.starvation import MOST_EVIDENCE, explains, starved_agents
from schemas.enums import AnomalyKind


def bad(
    prober: str,
    responder: str,
    *,
    lost: int,
    sent: int = 20,
    prober_late: LateCount = NO_LATE,
    responder_late: LateCount = NO_LATE,
) -> BadFlow:
    """Return a 5-tuple that lost so many of its probes."""
    symptom = Symptom(
        kind=AnomalyKind.LOSS, agent_id=prober, onset_ns=0, onset_at=0, seen_ns=0, last_ns=0,
        sent=sent, lost=lost, rtt_ns=None, baseline_ns=None, host_delay_ns=None,
        prober_late=prober_late, responder_late=responder_late,
    )  # fmt: skip
    key = (f"{prober}/r0", f"{responder}/r0", 0)
    return BadFlow(
        key=key, symptoms=(symptom,), components=(), prober=prober, responder=responder, open=True
    )


def host_of(endpoint_id: str) -> str | None:
    """Return the host of an endpoint; of those of agent d it is not known."""
    return None if endpoint_id.startswith("d") else f"host-{endpoint_id[0]}"


def test_late_answers_show_a_starved_prober_and_responder() -> None:
    """Each by the reports on its side; the other ends are not starved."""
    flows = [
        bad("a", "b", lost=2, prober_late=(12, 600)),
        bad("c", "a", lost=2, responder_late=(3, 100)),
    ]
    found = starved_agents(flows, host_of)
    assert set(found) == {"a"}
    assert [explains(found, flow) for flow in flows] == [("a", None), (None, "a")]


def test_few_late_answers_among_many_are_usual() -> None:
    """A count says little without the answers that it is of."""
    assert starved_agents([bad("a", "b", lost=2, prober_late=(3, 50_000))], host_of) == {}
    assert starved_agents([bad("a", "b", lost=2, prober_late=(2, 10))], host_of) == {}
    assert set(starved_agents([bad("a", "b", lost=2, prober_late=(3, 300))], host_of)) == {"a"}


def test_reports_of_one_pool_count_once() -> None:
    """However many 5-tuples repeat them."""
    one = starved_agents([bad("a", "b", lost=2, prober_late=(3, 600))], host_of)
    many = starved_agents(
        [bad("a", f"b{n}", lost=2, prober_late=(3, 600)) for n in range(50)], host_of
    )
    assert one == many


def test_more_losses_than_lateness_explains_have_another_cause() -> None:
    """Two late answers of a hundred explain a loss of a tenth, and no cut."""
    late = (12, 600)
    few, cut = bad("a", "b", lost=3, prober_late=late), bad("a", "c", lost=20, prober_late=late)
    found = starved_agents([few, cut], host_of)
    assert 0.08 < found["a"].prober_share < 0.15
    assert explains(found, few) == ("a", None)
    assert explains(found, cut) == (None, None)


def test_evidence_is_bounded() -> None:
    """No count of late answers excuses everything."""
    found = starved_agents([bad("a", "b", lost=2, prober_late=(5_000, 10_000))], host_of)
    assert found["a"].evidence == MOST_EVIDENCE
    assert found["a"].prober_share < 1.0


def test_agents_of_one_host_are_one_cause() -> None:
    """One for each container; an agent whose host is not known is a cause by itself."""
    flows = [bad(name, "b", lost=2, prober_late=(12, 600)) for name in ("a0", "a1", "d")]
    found = starved_agents(flows, host_of)
    assert {agent: one.host for agent, one in found.items()} == {
        "a0": "host-a",
        "a1": "host-a",
        "d": "d",
    }
