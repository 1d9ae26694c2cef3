"""A host that lacks CPU is no fault of the network, nor does it hide one."""

from dataclasses import replace

import pytest

from localizer.config import CoreConfig
from localizer.facts import sampling
from schemas import topics
from schemas.enums import FaultLifecycle
from schemas.units import MS_NS
from tests.unit.localizer.simlab import CLUSTER, SimLab, localize

LINK = "link:leaf:p0-0--spine:0"
STARVED = "agent-h1"
SWITCH = "vsw:h1"
LATE = ("prober_late", "prober_answers", "responder_late", "responder_answers")


def lossy_switch(lab: SimLab, share: float) -> None:
    """Lose a share of the packets on either side of a virtual switch."""
    links = {
        link
        for targets in lab.targets.values()
        for target in targets
        for way in [lab._way(*target)]
        for link in (*way.links, *way.reply_links)
        if SWITCH in link
    }
    lab.effects.links.update(dict.fromkeys(links, (share, 0)))


def opened(lab: SimLab) -> set[tuple[str, str]]:
    """Return components and kinds of the faults that were opened."""
    return {
        (e.component_id, e.fault_kind) for e in lab.verdicts() if e.state is FaultLifecycle.OPEN
    }


@pytest.mark.parametrize(
    ("share", "usual_ms"), [(0.1, 0), pytest.param(0.25, 3, marks=pytest.mark.slow)]
)
def test_a_starved_host_is_no_fault_of_the_network(
    share: float, usual_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses from and to it come with late answers, whatever its delay is otherwise.

    Also in a storm: answers are counted of the 5-tuples that are not looked at, too.
    """
    lab = SimLab(seed=7)
    if usual_ms:
        lab.effects.slow[STARVED] = usual_ms * MS_NS
    lab.run(40)
    lab.effects.starved[STARVED] = share
    lab.run(60)
    lab.effects.starved.clear()
    lab.run(30)
    assert opened(lab) == set()
    monkeypatch.setattr(sampling, "MOST", 16)
    assert opened(lab) == set()


def test_without_late_answers_its_virtual_switch_is_named() -> None:
    """The same losses are the network's where nothing else accounts for them."""
    lab = SimLab(seed=7)
    lab.run(20)
    lab.effects.starved[STARVED] = 0.25
    lab.run(60)
    log = [
        replace(r, record=replace(r.record, **dict.fromkeys(LATE)))
        if r.topic == topics.ANOMALY.name
        else r
        for r in lab.log
    ]
    found = {e.component_id for e in localize(log, CoreConfig(cluster=CLUSTER))}
    assert found == {SWITCH}


def test_a_switch_that_loses_packets_is_named() -> None:
    """Nothing is late, so the host is not starved."""
    lab = SimLab(seed=7)
    lab.run(20)
    lossy_switch(lab, 0.08)
    lab.run(40)
    assert opened(lab) == {(SWITCH, "packet_loss")}


def test_a_lossy_cable_beside_a_starved_host_is_named() -> None:
    """Hosts that are not starved lose there, too."""
    lab = SimLab(seed=7)
    lab.run(20)
    lab.effects.starved[STARVED] = 0.15
    lab.run(20)
    lab.effects.links[LINK] = (0.1, 0)
    lab.run(40)
    assert opened(lab) == {(LINK, "packet_loss")}


def test_a_dead_switch_of_a_starved_host_is_named() -> None:
    """No late answer explains that all probes are lost."""
    lab = SimLab(seed=7)
    lab.run(20)
    lab.effects.starved[STARVED] = 0.15
    lab.run(30)
    lab.effects.off.add(SWITCH)
    lab.run(15)
    assert (SWITCH, "vswitch_down") in opened(lab)
