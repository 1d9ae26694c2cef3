"""The kinds of fault and how claims tell them."""

from localizer.facts.inputs import Sources
from localizer.verdict.catalogue import DOWN, KINDS, LATENCY, LAYER_OF, LOSS, PARTIAL, Shows
from localizer.verdict.claims import make_claim
from schemas.enums import ComponentKind, Layer
from tests.unit.localizer.made import START, small_fabric
from tests.unit.localizer.sources import sources

SEVERITIES = {"critical", "error", "warning", "info"}


def test_every_kind_says_what_to_do() -> None:
    """Each has a severity that routers know, a symptom and a first step."""
    for kind in KINDS.values():
        assert kind.severity in SEVERITIES
        assert kind.symptom
        assert kind.runbook.endswith(".")
    assert set(DOWN.values()) <= set(KINDS)


def test_every_kind_says_what_probes_see() -> None:
    """Those of the host layer and of flow tables are shown by other records."""
    for kind in KINDS.values():
        late, lost = kind.group == LATENCY, kind.group == LOSS
        assert (kind.shows is Shows.LATE) is late
        assert (kind.shows is Shows.NOTHING) is not (late or lost)
        assert kind.explains <= KINDS.keys()
    assert {"packet_loss", "crc_error", "buffer_loss"} == PARTIAL


def test_a_claim_knows_its_layer_and_sentence() -> None:
    """The layer is the component's, unless the kind has one; the summary names what is blamed."""
    known: Sources = sources(small_fabric())
    for component, kind, layer in (
        ("l0--s0", "connectivity", Layer.UNDERLAY),
        ("v0", "packet_loss", Layer.OVERLAY),
        ("r0", "flow_missing", Layer.OVERLAY),
    ):
        claim = make_claim(
            known, KINDS[kind], component, decided=True, confidence=1.2,
            candidates=[(component, 1.0), ("s0", 0.001)], keys=frozenset({("e0", "e1", 0)}),
            good=3, onset_ns=START, evidence=["why", "how", "why"], ready=True,
        )  # fmt: skip
        assert claim.evidence[:-1] == ("why", "how")
        assert claim.layer is layer
        assert claim.summary.startswith(f"{component}: ")
        assert "(1 of 4 5-tuples)" in claim.summary
        assert claim.confidence == 1.0
        assert claim.candidates == ((component, 1.0),)
    assert LAYER_OF[ComponentKind.AGENT] is Layer.HOST


def test_an_undecided_claim_names_its_candidates() -> None:
    """The sentence says that it is open, and between whom."""
    claim = make_claim(
        sources(small_fabric()), KINDS["connectivity"], "l0--s0", decided=False, confidence=0.5,
        candidates=[("l0--s0", 0.5), ("l1--s0", 0.5)], keys=frozenset(), good=0,
        onset_ns=START, evidence=[], ready=True,
    )  # fmt: skip
    assert claim.summary == "undecided between l0--s0, l1--s0: nothing gets through"
