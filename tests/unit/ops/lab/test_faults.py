"""Which faults can be asked for, and what they do to a link."""

import json
import random
from pathlib import Path

import pytest

from ops.lab.fault_kinds import KINDS, NETNS_LAB
from ops.lab.faultboard import effect_of, truth_of
from ops.lab.faults import FaultError, check_fault, targets_of
from ops.lab.impairment import Effect, LinkDirection, corrupt_payload
from ops.lab.shape import LabShape
from ops.lab.truth import Truth, TruthLog, lab_truth
from schemas.enums import Layer

SHAPE = LabShape()
LINK = "link:leaf:p0-0--spine:0"


def test_the_promised_kinds_are_there() -> None:
    """No kind that the lab promises is missing, and none is undocumented."""
    assert set(KINDS) == {
        "link-cut", "link-loss", "link-delay", "link-jitter", "link-corrupt", "link-flap",
        "switch-off", "flow-hole", "flow-loop", "agent-kill", "agent-stop", "link-down",
        "link-mtu", "route-withdraw", "route-hole", "acl-drop", "container-kill",
        "agent-starve", "gid-change", "qkey-stale", "link-rate", "link-rate-fair",
        "cross-traffic", "agent-quota", "agent-crowd", "agent-drain", "task-end",
        "rank-stop", "rank-stall", "rank-slow", "rank-desync", "rank-exit",
    }  # fmt: skip
    assert all(kind.doc and kind.example.startswith(name) for name, kind in KINDS.items())


@pytest.mark.parametrize("name", KINDS)
def test_every_example_is_valid(name: str) -> None:
    """What `lab kinds` shows can be typed as it stands."""
    _, target, *flags = KINDS[name].example.split()
    raw = dict(zip(flags[::2], flags[1::2], strict=True))
    words = ("--dst", "--how")
    params = {k.removeprefix("--"): v if k in words else float(v) for k, v in raw.items()}
    spec = check_fault(name, target, params, SHAPE, KINDS[name].labs[0])
    others = {"container": "vsw:h1", "endpoint": "agent-h0", "rank": "job1|3"}
    assert spec.component_ids[0] == others.get(KINDS[name].target, target)
    assert spec.layer is KINDS[name].layer


@pytest.mark.parametrize("name", KINDS)
def test_every_target_is_accepted(name: str) -> None:
    """A kind can be put on every component that it lists, with its defaults."""
    for target in targets_of(KINDS[name], SHAPE):
        assert check_fault(name, target, {}, SHAPE, KINDS[name].labs[0]).target == target


@pytest.mark.parametrize("text", ["spine:0--leaf:p0-0", "leaf:p0-0--spine:0", LINK])
def test_a_link_may_be_named_from_either_end(text: str) -> None:
    """The canonical id comes out."""
    assert check_fault("link-cut", text, {}, SHAPE).target == LINK


def test_defaults_are_filled_in() -> None:
    """A fault says in the truth what it did, also where the user said nothing."""
    always = {"duty": 100.0, "period_s": 10.0}
    assert check_fault("link-loss", LINK, {}, SHAPE).params == {"percent": 10.0} | always
    assert check_fault("link-delay", LINK, {"ms": 7}, SHAPE).params == {"ms": 7.0} | always


def test_unknown_names_come_with_near_ones() -> None:
    """The message helps: near kinds, near components."""
    with pytest.raises(FaultError, match="link-cut"):
        check_fault("link_cut", LINK, {}, SHAPE)
    with pytest.raises(FaultError, match="leaf:p0-0"):
        check_fault("switch-off", "leaf:p00", {}, SHAPE)
    with pytest.raises(FaultError, match="agent-h0"):
        check_fault("agent-kill", "h0", {}, SHAPE)
    with pytest.raises(FaultError, match="job1-w1/r0"):
        check_fault("flow-hole", "vsw:h0", {"dst": "job1-w1-r0"}, SHAPE)


def test_all_that_is_wrong_is_named_at_once() -> None:
    """Unknown component, value out of bounds and a parameter that the kind lacks: one message."""
    with pytest.raises(FaultError) as caught:
        check_fault("link-loss", "link:x--y", {"percent": 101, "ms": 3}, SHAPE)
    text = str(caught.value)
    assert all(part in text for part in ("link:x--y", "percent=101", "no parameter 'ms'"))


@pytest.mark.parametrize("value", [True, "5", 0, -1, float("nan"), float("inf")])
def test_a_share_must_be_a_number_within_bounds(value: object) -> None:
    """What cannot be a share is refused, not rounded."""
    with pytest.raises(FaultError):
        check_fault("link-loss", LINK, {"percent": value}, SHAPE)


def test_the_sender_must_be_an_end_of_the_link() -> None:
    """A direction is named by its sending end."""
    assert check_fault("link-cut", LINK, {"sender": "spine:0"}, SHAPE).params == {
        "sender": "spine:0"
    }
    with pytest.raises(FaultError, match=r"leaf:p0-0 or spine:0"):
        check_fault("link-cut", LINK, {"sender": "spine:1"}, SHAPE)


def test_a_loop_may_be_blamed_on_both_of_its_nodes() -> None:
    """Two components point at each other; the one that was asked for comes first."""
    spec = check_fault("flow-loop", "rnic:h0/r0", {"dst": "job1-w1/r0"}, SHAPE)
    assert spec.component_ids == ("rnic:h0/r0", "vsw:h0")
    whole = check_fault("flow-loop", "vsw:h0", {}, SHAPE)
    assert whole.component_ids == ("vsw:h0", *(f"rnic:h0/r{r}" for r in range(4)))


def test_effects_add_up_and_are_taken_back() -> None:
    """Shares combine as independent events, delays as sums; without effects a link is clean."""
    link = LinkDirection(LINK, "leaf:p0-0", "spine:0")
    assert not link.impaired
    for name, effect in {
        "a": Effect(loss=0.5),
        "b": Effect(loss=0.5, delay_ns=3),
        "c": Effect(delay_ns=4),
    }.items():
        link.set_effect(name, effect)
    rng = random.Random(1)
    fates = [link.fate(rng) for _ in range(4_000)]
    lost = sum(f.lost for f in fates)
    assert abs(lost - 3_000) < 5 * (4_000 * 0.75 * 0.25) ** 0.5
    assert {f.delay_ns for f in fates if not f.lost} == {7}
    assert (link.lost, link.delayed) == (lost, 4_000 - lost)
    for name in "abc":
        link.remove(name)
    assert not link.impaired


def test_a_cut_loses_everything_and_jitter_stays_in_its_bounds() -> None:
    """Jitter is between 0 and its bound, and both ends occur."""
    rng = random.Random(2)
    cut = LinkDirection(LINK, "a", "b")
    cut.set_effect("x", Effect(cut=True, delay_ns=5))
    assert all(cut.fate(rng).lost for _ in range(100))
    jitter = LinkDirection(LINK, "a", "b")
    jitter.set_effect("x", Effect(jitter_ns=3, delay_ns=10))
    assert {jitter.fate(rng).delay_ns for _ in range(400)} == {10, 11, 12, 13}


@pytest.mark.parametrize("size", [21, 22, 23, 200])
def test_corruption_changes_the_payload_and_nothing_before_it(size: int) -> None:
    """From the first payload byte on something differs; the header stays."""
    rng = random.Random(3)
    for _ in range(50):
        datagram = bytearray(size)
        corrupt_payload(datagram, 20, rng)
        assert not any(datagram[:20])
        assert any(datagram[20:])
    header_only = bytearray(20)
    corrupt_payload(header_only, 20, rng)
    assert not any(header_only)


def test_only_faults_of_the_fabric_have_an_effect_on_links() -> None:
    """A kind without effect on links is refused, not ignored."""
    with pytest.raises(FaultError):
        effect_of(check_fault("agent-kill", "agent-h0", {}, SHAPE))


def test_truth_survives_the_file(tmp_path: Path) -> None:
    """What was written is read again, line by line, in order; the file is private."""
    log = TruthLog(tmp_path / "truth.jsonl")
    assert log.read() == []
    spec = check_fault("flow-loop", "vsw:h1", {"dst": "job1-w1/r0"}, SHAPE)
    lines = [lab_truth("up", "default"), truth_of("inject", "f1", spec)]
    for line in lines:
        log.append(line)
    assert log.read() == lines
    assert lines[1].layer is Layer.OVERLAY
    assert (tmp_path / "truth.jsonl").stat().st_mode & 0o777 == 0o600


def test_truth_says_when_in_wall_clock_nanoseconds() -> None:
    """A line is plain JSON with the fields that are promised."""
    spec = check_fault("link-cut", LINK, {}, SHAPE)
    line = json.loads(json.dumps(truth_of("inject", "f1", spec).as_dict()))
    assert line["at_ns"] > 1_700_000_000 * 10**9
    assert (line["action"], line["component_id"], line["layer"]) == ("inject", LINK, "UNDERLAY")
    assert Truth.from_dict(line).component_ids == (LINK,)


def test_a_rank_is_named_by_its_number_or_its_id() -> None:
    """The id of the records comes out, and a word that a parameter lacks is told."""
    for target in ("3", "job1|3"):
        spec = check_fault("rank-desync", target, {}, SHAPE, NETNS_LAB)
        assert (spec.target, spec.params) == ("job1|3", {"how": "size"})
    with pytest.raises(FaultError, match=r"needs a rank.*how='colour': size or order"):
        check_fault("rank-desync", "99", {"how": "colour"}, SHAPE, NETNS_LAB)
