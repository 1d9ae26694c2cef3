"""Each baseline on windows of a small fabric with a known answer."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from arena.baselines.bayesian import Bayesian
from arena.baselines.catalogue import BASELINES
from arena.baselines.features import HalfHours, LookBack, features
from arena.baselines.hit_ratio import HitRatio
from arena.baselines.least_squares import LeastSquares, solve
from arena.baselines.observing import Window
from arena.baselines.plugin import Accusation, Diagnoser
from arena.baselines.published import Published
from arena.baselines.rtt_threshold import RttThreshold
from arena.baselines.votes import Votes
from schemas.records import FlowEntry, FlowTable
from schemas.units import US_NS
from tests.unit.arena.baselines.made import (
    CLUSTER,
    PATHS,
    RNIC,
    TOR,
    UPLINK,
    network,
    window,
    with_fault,
)

# They know paths and find any single fault that all their evidence points at.
LOCALIZERS = [Votes, HitRatio, LeastSquares, Bayesian]


def only(found: list[Accusation]) -> Accusation:
    """Return the one accusation there is."""
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("make", LOCALIZERS)
def test_a_cut_uplink_is_found(make: Callable[[], Diagnoser]) -> None:
    """Everything across one uplink is lost: that link is accused of a cut, and nothing else."""
    said = only(make().observe(window(with_fault([UPLINK], loss=1.0))))
    assert (said.component_id, said.kind) == (UPLINK, "connectivity")


@pytest.mark.parametrize("make", LOCALIZERS)
def test_a_slow_uplink_is_found(make: Callable[[], Diagnoser]) -> None:
    """100 µs more across one uplink count like loss."""
    said = only(make().observe(window(with_fault([UPLINK], delay_ns=100 * US_NS))))
    assert (said.component_id, said.kind) == (UPLINK, "high_latency")


@pytest.mark.parametrize("make", LOCALIZERS)
def test_a_dead_switch_is_found(make: Callable[[], Diagnoser]) -> None:
    """Everything across a ToR is lost: the ToR, not its links or the RNICs below it."""
    assert only(make().observe(window(with_fault([TOR], loss=1.0)))).component_id == TOR


@pytest.mark.parametrize("make", LOCALIZERS)
def test_a_dead_rnic_is_found_up_to_its_cable(make: Callable[[], Diagnoser]) -> None:
    """RNIC and cable are crossed by the same 5-tuples: one is accused, the other named."""
    said = only(make().observe(window(with_fault([RNIC], loss=1.0))))
    alike = {RNIC, f"link:leaf:s1-r1--{RNIC}"}
    assert said.component_id in alike
    # All bad 5-tuples cross the ToR as well, and 007 does not hear the good ones.
    assert alike <= set(said.named) if make is Votes else alike == set(said.named)


@pytest.mark.parametrize("make", [HitRatio, LeastSquares, Bayesian])
def test_two_cut_links_are_both_found(make: Callable[[], Diagnoser]) -> None:
    """Two uplinks of different ToRs at once."""
    other = "link:leaf:s2-r1--spine:0"
    said = make().observe(window(with_fault([UPLINK, other], loss=1.0)))
    assert {a.component_id for a in said} == {UPLINK, other}


@pytest.mark.parametrize("make", BASELINES.values(), ids=BASELINES)
def test_health_accuses_nobody(make: Callable[[], Diagnoser]) -> None:
    """Twelve windows of a healthy fabric, after which look-backs are full."""
    diagnoser = make()
    for number in range(12):
        assert diagnoser.observe(window(with_fault([], seed=number), number)) == []


@pytest.mark.parametrize("make", BASELINES.values(), ids=BASELINES)
def test_nothing_seen_accuses_nobody(make: Callable[[], Diagnoser]) -> None:
    """No answers, no probes, no paths: nothing falls over."""
    whole = window(lambda *_: [])
    assert make().observe(whole) == []


def test_a_gray_link_gets_the_right_probability() -> None:
    """Least squares on exact shares: the link that loses 5 % has x = 0.95, the rest 1."""
    success = np.array([0.95, 0.95, 1.0, 1.0])
    found = solve([np.array([0, 1]), np.array([0, 2]), np.array([1, 3])], success, penalty=0.01)
    assert found == pytest.approx([0.95, 1.0, 1.0], abs=0.01)


def test_a_link_behind_a_dead_one_is_not_accused() -> None:
    """All its paths cross the dead link too, which others show to be dead: nothing is known."""
    success = np.array([0.0, 0.0, 0.0])
    assert solve([np.array([0]), np.array([0, 1, 2])], success) == pytest.approx(
        [1.0, 0.0], abs=1e-6
    )


def test_007_counts_the_votes_of_bad_flows_alone() -> None:
    """A single lost probe makes its path's link guilty: good 5-tuples have no say."""
    lossy = next(iter(PATHS))
    said = only(
        Votes().observe(
            window(lambda f, _: [None if f == lossy else 16 * US_NS] + [16 * US_NS] * 29)
        )
    )
    assert set(said.named) == set(PATHS[lossy])


def test_a_hit_ratio_of_half_is_not_enough() -> None:
    """A switch that swallows half of its 5-tuples is missed: the published threshold is 0.6."""
    dead = {f for n, f in enumerate(f for f, path in PATHS.items() if TOR in path) if n % 2}
    answers: list[int | None] = [16 * US_NS] * 30
    whole = window(lambda f, _: [None] * 30 if f in dead else answers)
    assert TOR not in {a.component_id for a in HitRatio().observe(whole)}
    assert TOR in {a.component_id for a in Bayesian().observe(whole)}


def test_the_threshold_blames_the_rnic_of_the_pairs() -> None:
    """The RNIC at which the bad 5-tuples meet."""
    said = only(RttThreshold().observe(window(with_fault([RNIC], delay_ns=100 * US_NS))))
    assert (said.component_id, said.kind) == (RNIC, "high_latency")


def slices(answers: Callable[[int], Window], count: int) -> list[list[Accusation]]:
    """Return what the published pipeline says of each of some slices."""
    diagnoser = Published()
    return [diagnoser.observe(answers(number)) for number in range(count)]


def test_published_flags_loss_in_the_next_slice() -> None:
    """Loss is flagged directly; the link with most failing paths is named first."""
    (said,) = slices(lambda n: window(with_fault([UPLINK], n, loss=1.0, count=5), n, seconds=5), 1)
    assert (only(said).component_id, only(said).kind) == (UPLINK, "connectivity")


def test_published_finds_a_slow_link_by_lof() -> None:
    """Six healthy windows, two slow ones: told at the end of the second."""
    known = network()

    def at(number: int) -> Window:
        delay_ns = 100 * US_NS if number >= 36 else 0
        answers = with_fault([UPLINK], number, delay_ns=delay_ns, count=5)
        return window(answers, number, seconds=5, within=known)

    said = slices(at, 48)
    assert not any(said[:47])
    assert (only(said[47]).component_id, only(said[47]).kind) == (UPLINK, "high_latency")


def test_published_says_nothing_of_a_single_failing_path() -> None:
    """All counts are one at most: no underlay failure (algorithm 1)."""
    lossy = next(iter(PATHS))
    said = slices(
        lambda n: window(lambda f, _: [None if f == lossy else 16 * US_NS], n, seconds=5), 1
    )
    assert said == [[]]


def table(host: int, entries: Sequence[tuple[str, str, str | None, bool | None]]) -> FlowTable:
    """Return a host's flow table."""
    return FlowTable(
        cluster="lab", host_id=f"host:h{host}", captured_at=1,
        entries=tuple(
            FlowEntry(node=n, dst=d, next_hop=h, offloaded=o) for n, d, h, o in entries
        ),
    )  # fmt: skip


def test_published_replays_the_overlay() -> None:
    """The virtual switch has no entry for the destination: it is the fault, whatever is voted."""
    flow = src, dst, _ = next(iter(PATHS))
    known = network()
    entries = [(src, dst, "vswitch:h0", None), ("vswitch:h0", "ep:none/r0", None, None)]
    known.tables.set_table(table(0, entries))
    lossy = window(lambda f, _: [None if f == flow else 16 * US_NS], seconds=5, within=known)
    said = only(Published().observe(lossy))
    assert (said.component_id, said.kind) == ("vswitch:h0", "flow_missing")


def test_published_validates_rnics_last() -> None:
    """One failing path, tables whole, an entry that is not offloaded: RNIC validation."""
    flow = src, dst, _ = next(iter(PATHS))
    known = network()
    known.tables.set_table(table(0, [(src, dst, dst, False)]))
    known.tables.set_table(table(1, [(dst, src, src, True)]))
    lossy = window(lambda f, _: [None if f == flow else 16 * US_NS], seconds=5, within=known)
    said = only(Published().observe(lossy))
    assert (said.component_id, said.kind) == ("vswitch:h0", "not_offloaded")


def test_features_are_those_of_numpy() -> None:
    """P25, P50, P75, minimum, mean, standard deviation, maximum."""
    whole = window(with_fault([UPLINK], loss=0.3))
    found = features(whole)
    for place in range(len(whole)):
        x = whole.rtts_ns(place)
        wanted = [*np.quantile(x, [0.25, 0.5, 0.75]), x.min(), x.mean(), x.std(), x.max()]
        assert found[place] == pytest.approx(wanted, rel=1e-6)


def test_one_strange_window_is_no_anomaly() -> None:
    """Two in a row are; and none of them enters the look-back."""
    look_back, known = LookBack(), network()
    strange = {7, 9, 10, 11}
    for number in range(12):
        delay_ns = 100 * US_NS if number in strange else 0
        answers = with_fault([UPLINK], number, delay_ns=delay_ns)
        anomalous = look_back.put(window(answers, number, within=known))
        wanted = {f for f, path in PATHS.items() if UPLINK in path}
        assert anomalous == (wanted if number in {10, 11} else set())


def test_half_hours_see_what_windows_do_not() -> None:
    """Two percent slower from the second half-hour on: five sigma of 1,800 probes."""
    test, known = HalfHours(block_ns=120 * 10**9, least_z=5.0), network()
    told: list[set[tuple[str, str, int]]] = []
    for number in range(8):
        answers = with_fault([UPLINK], number, delay_ns=3 * US_NS if number >= 4 else 0, count=60)
        told.append(test.put(window(answers, number, within=known)))
    assert not any(told[:7])
    assert told[7] == {f for f, path in PATHS.items() if UPLINK in path}


def test_the_small_fabric_is_what_the_tests_think() -> None:
    """Several pairs cross the uplink, others do not."""
    crossing = [f for f, path in PATHS.items() if UPLINK in path]
    assert 4 < len(crossing) < len(PATHS) == len(CLUSTER.flows)
