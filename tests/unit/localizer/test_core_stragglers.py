"""Some late answers at one RNIC: a fault where flow entries are in software, else perhaps a job."""

from dataclasses import replace

import pytest

from schemas import topics
from schemas.enums import AnomalyKind, AnomalyState, FaultLifecycle
from schemas.ids import path_id
from schemas.records import Anomaly, FaultEvent
from tests.unit.localizer.simlab import CLUSTER, SimLab

BEGIN_S, LAST_S, EACH_S = 10, 90, 5


def straggler(lab: SimLab, key: tuple[str, str, int], agent: str, begin_ns: int) -> Anomaly:
    """Return that some of a 5-tuple's last answers are late, and that their median is as ever."""
    src, dst, flow = key
    return Anomaly(
        cluster=CLUSTER, anomaly_id=f"{key}{lab.now}", kind=AnomalyKind.BRIEF_LATENCY,
        state=AnomalyState.ONSET if lab.now == begin_ns else AnomalyState.ONGOING,
        path_id=path_id(src, dst), src=src, dst=dst, flow=flow, agent_id=agent,
        event_at=lab.now // 1_000, onset_at=begin_ns // 1_000, detector="brief_latency",
        value=900_000.0, reference=150_000.0, threshold=200_000.0, unit="ns", sent=12, lost=0,
        rtt_p50_ns=101_000, baseline_p50_ns=100_000,
    )  # fmt: skip


def verdicts(*, software_s: int | None) -> list[FaultEvent]:
    """Return what is told of stragglers at the first endpoint of the lab.

    From `software_s` on its host's table shows the entries to one other endpoint in software.
    """
    lab = SimLab(seed=5)
    lab.run(BEGIN_S)
    begin_ns = lab.now
    agent = lab.shape.agent_ids()[0]
    end = lab.targets[agent][0][0]
    keys = [
        (name, (a.endpoint_id, b.endpoint_id, flow))
        for name, targets in lab.targets.items()
        for a, b, flow in targets
        if end in (a, b)
    ]
    slow = next(key[1] for _, key in keys if key[0] == end.endpoint_id)
    for second in range(0, LAST_S, EACH_S):
        for name, key in keys:
            record = straggler(lab, key, name, begin_ns)
            lab.write(topics.ANOMALY.name, record.path_id, record, lab.now)
        if software_s is not None and second == software_s:
            table = lab.overlay.table(end.host, cluster=CLUSTER, captured_at=lab.now // 1_000)
            entries = tuple(
                replace(e, offloaded=False) if e.offloaded and e.dst == slow else e
                for e in table.entries
            )
            lab.write(
                topics.OVERLAY_FLOWS.name, table.host_id, replace(table, entries=entries), lab.now
            )
        lab.run(EACH_S)
    return lab.verdicts()


def test_a_job_may_do_the_same() -> None:
    """However long it lasts."""
    assert not verdicts(software_s=None)


@pytest.mark.parametrize("software_s", [5, 40])
def test_entries_in_software_explain_it(software_s: int) -> None:
    """As soon as a table shows them; they say what it is, and where."""
    found = verdicts(software_s=software_s)
    (opened,) = [event for event in found if event.state is FaultLifecycle.OPEN]
    assert (opened.fault_kind, opened.component_id) == ("not_offloaded", "rnic:h0/r0")
    # The moments are known when the table comes; its symptoms wait as those of any moment.
    assert (opened.event_at - opened.onset_at) // 1_000_000 <= software_s + 20
