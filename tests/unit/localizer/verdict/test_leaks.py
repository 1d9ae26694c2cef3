"""A leak that is over goes on explaining the replies that it lost."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from localizer.facts.roster import Roster
from localizer.inference.observations import ResolvedFaults
from localizer.inference.pooled_loss import Leak
from localizer.network.directions import Directions
from localizer.network.paths import PathBook
from localizer.network.topology import Topology
from localizer.verdict import leaks
from localizer.verdict.incident import Incident
from schemas.enums import AnomalyKind, AnomalyState
from schemas.units import SECOND_NS, ns_to_us
from tests.unit.localizer.made import START, anomaly
from tests.unit.localizer.sources import sources

# What each target's 5-tuples cross, and their replies.
CROSSED = {"e1": ("open",), "e2": ("beside",), "e3": ("elsewhere",)}
REPLIES = {"e1": "open", "e2": "open", "e3": "elsewhere"}


def test_replies_that_a_leak_lost_are_no_second_leak_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Components that its probes do not cross seem to leak with it, and its losses end first."""
    known = sources(Topology())
    known = replace(
        known,
        paths=cast(
            PathBook,
            SimpleNamespace(components=lambda key, *_: CROSSED[key[1]]),
        ),
        roster=cast(Roster, SimpleNamespace(agent_of=lambda _: "b", has_left=lambda _: False)),
    )
    last_s = {"e1": 20, "e2": 24, "e3": 24}
    for target, until_s in last_s.items():
        for at in range(START, START + until_s * SECOND_NS, 2 * SECOND_NS):
            record = anomaly(
                AnomalyKind.STRAY_LOSS, AnomalyState.ONSET, at=at, onset=at, ends=("e0", target)
            )
            known.strays.observe_loss(record, at)
    found = {c: Leak(component=c, since_ns=START, log_chance=-1.0) for (c,) in CROSSED.values()}
    monkeypatch.setattr(leaks.Leaks, "_find", lambda *_: dict(found))
    fault = SimpleNamespace(
        components=frozenset({"open"}), event=SimpleNamespace(onset_at=ns_to_us(START))
    )
    tested = leaks.Leaks(known)
    ways = SimpleNamespace(shares=lambda _, dst: {REPLIES[dst]: 0.5})

    def test_at(second: int) -> frozenset[str]:
        tested.observe_time(
            START + second * SECOND_NS,
            cast(Directions, SimpleNamespace(replies=ways)),
            cast(ResolvedFaults, SimpleNamespace(until_ns=lambda *_: 0)),
            [cast(Incident, fault)],
        )
        return tested.components

    assert test_at(25) == {"open", "beside", "elsewhere"}
    found.clear()
    over_s = 18 + leaks.LEAST_QUIET_NS // SECOND_NS + 1
    assert test_at(over_s) == frozenset()
    assert {loss.key[1] for loss in known.strays.losses()} == {"e1", "e3"}
