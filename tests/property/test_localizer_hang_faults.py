"""The join over all orders of arrival: the same faults are open in the end, and nobody waits."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from localizer.config import CoreConfig
from localizer.verdict.catalogue import KINDS
from localizer.verdict.claims import Claim
from localizer.verdict.hang_faults import WAIT_NS, HangFaults
from localizer.verdict.lifecycle import Lifecycle, Situation
from schemas.enums import Certainty, ComponentKind, FaultLifecycle, HangClass, Layer
from schemas.ids import FlowId
from schemas.records import FaultEvent, Hang
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.localizer.made import START, small_fabric
from tests.unit.localizer.sources import sources

CONFIG = CoreConfig(cluster="lab")
KEYS: frozenset[FlowId] = frozenset({("e0", "e1", 0), ("e0", "e1", 1), ("e1", "e0", 0)})
STEP_NS = SECOND_NS // 4
END_S = 40
OPEN = FaultLifecycle.OPEN
SECONDS = st.integers(0, 4 * 25).map(lambda quarter: quarter / 4)


def network(component: str, *, decided: bool) -> Claim:
    """Return a claim about a component between the endpoints."""
    return Claim(
        component_id=component, component_kind=ComponentKind.LINK, layer=Layer.UNDERLAY,
        kind=KINDS["connectivity"], decided=decided, confidence=0.95 if decided else 0.5,
        candidates=((component, 0.95),), keys=KEYS, bad=len(KEYS), good=3, onset_ns=START,
        tasks=(), evidence=("seen", "first step"), ready=True,
    )  # fmt: skip


def hang(seq: int, hang_class: HangClass, now_ns: int) -> Hang:
    """Return a state of the hang of a job on both endpoints."""
    return Hang(
        cluster="lab", hang_id="h-1", task_id="job1", seq=seq, state=OPEN,
        event_at=ns_to_us(now_ns), onset_at=ns_to_us(START), hang_class=hang_class,
        certainty=Certainty.LIKELY, ranks=(1,), waiting_ranks=(0, 1), endpoint_ids=("e0", "e1"),
        stuck_flows=(), waited_ns=SECOND_NS, summary=f"hangs {hang_class}", evidence=(),
        next_steps=(),
    )  # fmt: skip


def played(
    hang_at_s: float, class_at_s: float, hang_class: HangClass, claim_at_s: float | None
) -> list[FaultEvent]:
    """Return all transitions of a hang, undecided at first, and a claim of the network."""
    known = sources(small_fabric())
    joined = HangFaults(CONFIG, known)
    faults = Lifecycle(CONFIG, joined.release)
    found: list[FaultEvent] = []
    claim = network("r0--l0", decided=True)
    for step in range(END_S * SECOND_NS // STEP_NS):
        now_ns = START + step * STEP_NS
        at_s = step / 4
        if at_s >= hang_at_s:
            late = at_s >= hang_at_s + class_at_s
            state = hang(1 + late, hang_class if late else HangClass.UNDECIDED, now_ns)
            known.hangs.set_hang("h-1", state, now_ns)
        claims = [claim] if claim_at_s is not None and at_s >= claim_at_s else []
        bad = KEYS if claims else frozenset[FlowId]()
        situation = Situation(
            bad_loss=bad, bad_latency=frozenset(), crossing=lambda _, __: KEYS, unexplained=0
        )
        events = faults.step(claims, situation, now_ns)
        found += joined.step(events, faults.open_faults(), faults.resolved_faults(), now_ns)
    return found


def final(events: list[FaultEvent]) -> set[tuple[object, ...]]:
    """Return what people see of the faults that are open in the end."""
    last = {event.fault_id: event for event in events}
    return {
        (e.component_id, e.fault_kind, e.layer, e.decided, e.ranks, e.tasks)
        for e in last.values()
        if e.state is not FaultLifecycle.RESOLVED
    }


@given(SECONDS, st.integers(0, 12).map(lambda q: q / 4), SECONDS)
def test_a_hang_of_the_network_is_one_fault_in_any_order(
    hang_at_s: float, class_at_s: float, claim_at_s: float
) -> None:
    """Opened once, and with the ranks five seconds after the hang at the latest."""
    events = played(hang_at_s, class_at_s, HangClass.NETWORK, claim_at_s)
    assert len([e for e in events if e.state is OPEN]) == 1
    assert final(events) == final(played(0.0, 0.0, HangClass.NETWORK, 0.0))
    told = min(e.event_at for e in events if e.ranks)
    since_ns = START + round(hang_at_s * SECOND_NS)
    assert told <= ns_to_us(since_ns + WAIT_NS)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


@given(SECONDS, st.integers(0, 12).map(lambda q: q / 4), SECONDS)
def test_a_rank_and_the_network_are_two_faults_in_any_order(
    hang_at_s: float, class_at_s: float, claim_at_s: float
) -> None:
    """What a rank caused stays beside what the network lost meanwhile, and names it."""
    events = played(hang_at_s, class_at_s, HangClass.PROCESS_STOPPED, claim_at_s)
    last = {e.fault_id: e for e in events}
    kinds = sorted((e.fault_kind, e.layer) for e in last.values() if e.resolved_at is None)
    assert kinds == [("connectivity", Layer.UNDERLAY), ("rank_stopped", Layer.JOB)]
    job = next(e for e in last.values() if e.layer is Layer.JOB)
    (other,) = (e for e in last.values() if e.layer is Layer.UNDERLAY)
    assert job.related_fault_ids == (other.fault_id,)
    assert other.ranks == ()
    assert job.ranks == ("job1|0", "job1|1")


def test_without_the_network_it_is_one_fault_of_its_own() -> None:
    """Five seconds after the hang, and no later."""
    events = played(2.0, 0.0, HangClass.NETWORK, None)
    (fault,) = events
    assert fault.fault_kind == "transfer_stuck"
    assert fault.event_at == ns_to_us(START + 2 * SECOND_NS + WAIT_NS)
    assert replace(fault, seq=1) == fault
