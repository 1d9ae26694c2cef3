"""What effects do to packets, against a twin that looks at one packet after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.faults.effects import Effect, Weather
from arena.world.fabric import NOWHERE
from schemas.units import SECOND_NS
from tests.unit.arena.worlds import at, cluster, loss

ON = cluster(hosts=4, rails=2, targets=3, flows=2, symmetric=False)

effects = st.builds(
    Effect,
    component=st.integers(0, ON.endpoint0 + 7),
    begin_ns=st.sampled_from([at(0), at(1.5), at(3)]),
    end_ns=st.sampled_from([None, at(2), at(4)]),
    loss=st.sampled_from([0.0, 0.3, 1.0]),
    delay_ns=st.sampled_from([0, 7_000]),
    on_ns=st.just(SECOND_NS),
    off_ns=st.sampled_from([0, SECOND_NS]),
    ramp_ns=st.sampled_from([0, 2 * SECOND_NS]),
    there=st.booleans(),
    back=st.booleans(),
    toward=st.sampled_from([None, 3]),
)


def strength(effect: Effect, t: int) -> float:
    """Return how strong an effect is at one time."""
    since = t - effect.begin_ns
    if since < 0 or (effect.end_ns is not None and t >= effect.end_ns):
        return 0.0
    if effect.off_ns and since % (effect.on_ns + effect.off_ns) >= effect.on_ns:
        return 0.0
    return min(1.0, since / effect.ramp_ns) if effect.ramp_ns else 1.0


def twin(found: list[Effect], place: int, t: int) -> tuple[float, float]:
    """Return what becomes of one probe and its reply."""
    flows = ON.flows
    kept, delay = 1.0, 0.0
    for effect in found:
        for wanted, way, to in (
            (effect.there, flows.there[place], flows.dst[place]),
            (effect.back, flows.back[place], flows.src[place]),
        ):
            if wanted and effect.component in way.tolist() and effect.toward in (None, int(to)):
                kept *= 1 - effect.loss * strength(effect, t)
                delay += effect.delay_ns * strength(effect, t)
    return kept, delay


@settings(max_examples=60)
@given(st.lists(effects, max_size=3), st.sampled_from([at(0), at(1.7), at(3.2), at(9)]))
def test_all_at_once_is_one_by_one(found: list[Effect], t: int) -> None:
    """Probabilities and delays of all 5-tuples."""
    kept, delay = Weather(ON, found).passed(np.full(len(ON.flows), t))
    for place in range(len(ON.flows)):
        assert (kept[place], delay[place]) == pytest.approx(twin(found, place, t))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_share_is_of_5_tuples_and_lasts(share: float) -> None:
    """Some are touched always, the others never; about as many as asked for."""
    on = cluster(hosts=16, rails=8, targets=6, flows=4)
    whole = Weather(on, [loss(on, "spine:0")]).passed(np.full(len(on.flows), at(1)))[0] < 1
    some = Weather(on, [loss(on, "spine:0", share=share)])
    first = some.passed(np.full(len(on.flows), at(1)))[0]
    assert np.array_equal(first, some.passed(np.full(len(on.flows), at(50)))[0])
    assert set(np.unique(first)) == {0.0, 1.0}
    assert not (first[~whole] < 1).any()
    # Probe and reply are drawn alike: 3,072 5-tuples, half of them over this spine.
    assert (first < 1).sum() / whole.sum() == pytest.approx(share, abs=0.06)


def test_a_packet_of_a_trace_meets_what_it_has_crossed() -> None:
    """Up to the hop, not beyond."""
    on = cluster(hosts=6, rails=1)
    flows = on.flows
    place = next(p for p in range(len(flows)) if on.number_of["spine:0"] in flows.there[p].tolist())
    way = [n for n in flows.there[place].tolist() if n != NOWHERE]
    weather = Weather(on, [loss(on, "spine:0", 0.25, delay_ns=500)])
    spine = way.index(on.number_of["spine:0"])
    assert weather.crossing(place, way[:spine], at(1)) == (1.0, 0.0)
    assert weather.crossing(place, way[: spine + 1], at(1)) == (0.75, 500.0)
