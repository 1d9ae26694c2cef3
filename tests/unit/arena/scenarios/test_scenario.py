"""Scenario files: what they may say, and what is drawn from them."""

from pathlib import Path

import numpy as np
import pytest

from arena.faults.confounders import CONFOUNDERS
from arena.faults.injection import FaultInterval, Places
from arena.faults.kinds import KINDS, Place, candidates, inject
from arena.scenarios.scenario import Scenario, ScenarioError, load, parse, stage
from arena.scenarios.suites import FIRST_SEED, scenarios
from localizer.facts.states import BY_ATTRIBUTE
from localizer.verdict.catalogue import KINDS as VERDICT_KINDS
from tests.unit.arena.worlds import at, cluster

TEXT = """
name = "one"
seed = 7
seconds = 200
[fabric]
hosts = 8
rails = 2
[cluster]
targets = 4
[[fault]]
kind = "switch_port_down"
begin_s = 60
end_s = 150
[[confounder]]
kind = "agent_crash"
begin_s = 30
end_s = 80
place = "host:h3"
"""


def test_a_file_is_read_and_staged(tmp_path: Path) -> None:
    """Sizes, times and places come out as they went in; what is open is drawn, always alike."""
    (tmp_path / "one.toml").write_text(TEXT)
    scenario = load(tmp_path / "one.toml")
    assert (scenario.name, scenario.seed, scenario.fabric.hosts, scenario.targets) == (
        "one",
        7,
        8,
        4,
    )
    staged = stage(scenario)
    fault, crash = staged.truth
    assert (fault.kind, fault.begin_ns, fault.end_ns) == ("port_down", at(60), at(150))
    assert crash.components == {"agent-h3"}
    assert stage(scenario).truth == staged.truth


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sedes = 3", "unknown: sedes; known: "),
        ("seconds = 0", "seconds=0: a whole number from 1 to"),
        ("[fabric]\nhosts = 0", "hosts=0: 1 to"),
        ("[fabric]\nhotss = 3", "unknown key hotss"),
        ('[[fault]]\nkind = "rain"\nbegin_s = 1', "fault kind='rain': one of crc_error"),
        ('[[fault]]\nkind = "crc_error"\nbegin_s = 9\nend_s = 3', "from 9 to 3 s"),
        ('[[fault]]\nkind = "crc_error"\nbegin = 9', "unexpected keyword argument 'begin'"),
        ("seconds = ", "Invalid value"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, reason: str) -> None:
    """The value, the bound, the file."""
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ScenarioError, match=r"bad\.toml") as error:
        load(tmp_path / "bad.toml")
    assert reason in str(error.value)


def test_an_unknown_place_is_named() -> None:
    """A component that is not there, and a host that is none."""
    table = {"fault": [{"kind": "crc_error", "begin_s": 1, "place": "spine:99"}]}
    with pytest.raises(ScenarioError, match="no component 'spine:99'"):
        stage(parse(table))
    table = {"confounder": [{"kind": "agent_crash", "begin_s": 1, "place": "rack 3"}]}
    with pytest.raises(ScenarioError, match="a host is written host:h0"):
        stage(parse(table))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_does_something_somewhere_and_can_be_told(name: str) -> None:
    """Its verdict exists, its states have rules, its right answers are components."""
    kind = KINDS[name]
    on = cluster(hosts=8, rails=2, targets=4)
    places = Places(on)
    rng = np.random.default_rng(1)
    component = candidates(kind, places)[0]
    made = inject(
        kind,
        places,
        rng,
        FaultInterval(begin_ns=at(1), end_ns=at(9)),
        component=component,
        fault_id="f",
    )
    assert made.effects or made.hosts
    assert kind.verdict in VERDICT_KINDS
    for symptom in made.symptoms:
        assert BY_ATTRIBUTE[symptom.attribute].kind == kind.verdict
    (truth,) = made.truth
    known = {*on.number_of, *(f"agent-h{h}" for h in range(8))}
    assert truth.components <= known
    if kind.places is Place.UPLINK:
        assert len(truth.components) == 1


def test_what_looks_alike_is_right_as_well() -> None:
    """The cable of a host with one ToR, and its RNIC."""
    places = Places(cluster(hosts=8, rails=2, targets=4))
    on = places.cluster
    alike = places.alike(on.number_of["rnic:h1/r1"])
    assert alike == {"rnic:h1/r1", "link:leaf:s0-r1--rnic:h1/r1"}
    assert places.alike(on.number_of["spine:0"]) == {"spine:0"}


def test_suites_do_not_share_seeds() -> None:
    """What is reported is never what was developed on."""
    seeds = {name: {s.seed for s in scenarios(name)} for name in FIRST_SEED}
    assert all(not seeds[a] & seeds[b] for a in seeds for b in seeds if a != b)


@pytest.mark.parametrize("suite", FIRST_SEED)
def test_every_scenario_can_be_staged(suite: str) -> None:
    """The shapes that are drawn leave a place for every fault."""
    found: list[Scenario] = list(scenarios(suite, 1))
    assert len({s.name for s in found}) == len(found)
    for scenario in found:
        staged = stage(scenario)
        assert all(t.begin_ns < at(scenario.seconds) for t in staged.truth)


def test_a_confounder_is_no_fault_of_the_network() -> None:
    """Only a crashed agent is told at all."""
    assert {c for c in CONFOUNDERS if stage(parse(
        {"fabric": {"hosts": 8}, "confounder": [{"kind": c, "begin_s": 5, "end_s": 20}]}
    )).truth} == {"agent_crash"}  # fmt: skip
