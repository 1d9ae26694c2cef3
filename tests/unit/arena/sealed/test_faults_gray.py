"""Gray faults: how much they lose or delay."""

import numpy as np
import pytest

from arena.sealed import faults_gray as gray
from arena.sealed.draft import LEAST_LOST
from tests.unit.arena.sealed.small import (
    BEGIN_S,
    END_S,
    Build,
    draft_with,
    hit_by,
    measured,
)

LOSSES = [gray.packet_loss, gray.crc_error, gray.buffer_loss]
DELAYS = [
    gray.high_latency,
    gray.pcie_downgrade,
    gray.pcie_error,
    gray.gpudirect_missing,
    gray.acs_ats_wrong,
    gray.hugepage_mismatch,
    gray.not_offloaded,
    gray.repetitive_offload,
    gray.not_using_rdma,
]


@pytest.mark.parametrize("build", LOSSES, ids=lambda build: build.__name__)
def test_a_loss_has_the_strength_that_it_claims(build: Build) -> None:
    """At least twelve probes are expected to be lost; as many are, on hit 5-tuples only."""
    draft = draft_with(build)
    geo = draft.geometry(BEGIN_S, END_S)
    expected = draft.lost(geo, draft.plan.effects)
    assert expected >= LEAST_LOST * 0.999
    count = 1_200
    during, _ = measured(draft, BEGIN_S, END_S, count=count)
    hit = hit_by(draft)
    outside = np.array([i not in hit for i in range(len(during))])
    assert during[outside].sum() == 0.0
    # Ten probes a second here, instead of one; bursts widen the scatter.
    mean = expected * count / (END_S - BEGIN_S)
    assert during.sum() * count == pytest.approx(mean, abs=max(12.0 * np.sqrt(mean), 0.5 * mean))


@pytest.mark.parametrize("build", DELAYS, ids=lambda build: build.__name__)
def test_a_delay_has_the_strength_that_it_claims(build: Build) -> None:
    """The mean round trip of affected 5-tuples rises by the mean of what hits them."""
    draft = draft_with(build)
    geo = draft.geometry(BEGIN_S, END_S)
    (_, _, affected) = draft.affected[0]
    claimed = np.zeros(len(draft.cluster.flows))
    for effect in draft.plan.effects:
        assert effect.delay is not None
        share = effect.schedule.on_s / (END_S - BEGIN_S)
        for flows in geo.hit(effect.where):
            claimed[sorted(flows)] += effect.delay.mean_ns * share
    during, before = (
        measured(draft, begin_s, end_s, count=400)[1]
        for begin_s, end_s in ((BEGIN_S, END_S), (0.0, BEGIN_S))
    )
    shift = during - before
    chosen = sorted(affected)
    assert np.median(shift[chosen]) == pytest.approx(np.median(claimed[chosen]), rel=0.2, abs=400)
    assert np.abs(np.median(shift[claimed == 0.0])) < 300.0


@pytest.mark.parametrize("build", [gray.congestion, gray.congestion_control_off])
def test_a_full_queue_delays_what_crosses_it(build: Build) -> None:
    """By microseconds, and what does not cross it not at all."""
    draft = draft_with(build)
    (_, _, affected) = draft.affected[0]
    during, before = (
        measured(draft, begin_s, end_s, count=300)[1]
        for begin_s, end_s in ((BEGIN_S, END_S), (0.0, BEGIN_S))
    )
    shift = during - before
    assert np.median(shift[sorted(affected)]) > 1_500.0
    assert np.quantile(np.abs(shift), 0.25) < 300.0


def test_what_is_not_in_hardware_is_in_the_tables_of_one_rnic() -> None:
    """Entries of the host's VTEP on that RNIC, with the destinations that are late."""
    draft = draft_with(gray.not_offloaded)
    edits = draft.plan.tables
    (where,) = {effect.where for effect in draft.plan.effects}
    assert {edit.offloaded for edit in edits} == {False}
    assert {edit.dsts for edit in edits} == {where.dsts}
    assert {edit.node for edit in edits} <= draft.injected[0].components
