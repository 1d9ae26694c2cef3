"""The truth beside a recording: read as it was written, also where others wrote it."""

import json
from pathlib import Path

import pytest

from ops.recording.labels import Label, Labels
from schemas.enums import Layer

LABELS = Labels(
    recording="one",
    start_ns=1_790_000_000 * 10**9,
    duration_s=900.0,
    faults=(
        Label(
            kind="packet_loss", name="1 % loss", layer=Layer.UNDERLAY, from_s=420.5, to_s=600.0,
            components=("link:a--b",), also_right=("rnic:a",), also_kinds=("crc_error",),
            load=1.25,
        ),
        Label(
            kind="connectivity", layer=Layer.UNDERLAY, from_s=700.0, to_s=None,
            components=("link:c--d",), hard=True,
        ),
    ),
    confounders=(Label(kind="agent-drain", from_s=10.0, to_s=20.0, components=("agent-h1",)),),
    left_out=("fair queue: no fq_codel",),
)  # fmt: skip


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    """All of it, and beside the recording that it is of."""
    path = LABELS.write(tmp_path)
    assert path == tmp_path / "one.truth.json"
    assert Labels.read(path) == LABELS


def test_the_truth_of_another_simulator_is_read_too(tmp_path: Path) -> None:
    """What it does not say is unknown, not false: layers are in small letters there."""
    path = tmp_path / "x.truth.json"
    said = {
        "recording": "x", "start_ns": 5, "duration_s": 900,
        "faults": [
            {"kind": "missing_route", "layer": "overlay", "from_s": 1, "to_s": 2,
             "components": ["rnic3"], "also_right": ["ovs3"]}
        ],
        "confounders": [{"kind": "cpu", "from_s": 1, "to_s": 2, "components": ["host4"]}],
    }  # fmt: skip
    path.write_text(json.dumps(said))
    labels = Labels.read(path)
    assert labels.faults[0].layer is Layer.OVERLAY
    assert labels.confounders[0].layer is Layer.UNKNOWN
    assert labels.confounders[0].load is None


def test_faults_are_scored_at_their_own_time_by_all_their_names() -> None:
    """Seconds after the beginning become time since the epoch; a confounder is no fault."""
    loss, cut = LABELS.true_faults()
    assert (loss.begin_ns, loss.end_ns) == (1_790_000_420_500_000_000, 1_790_000_600_000_000_000)
    assert loss.components == {"link:a--b", "rnic:a"}
    assert (loss.kind, loss.also_kinds, loss.hard) == (
        "packet_loss",
        frozenset({"crc_error"}),
        False,
    )
    assert (cut.end_ns, cut.hard) == (None, True)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", '{"recording": "x"}',
        '{"recording": "x", "start_ns": 1, "duration_s": 1, "faults": [1]}',
        '{"recording": "x", "start_ns": 1, "duration_s": 1, "faults": [{"kind": "k"}]}',
        '{"recording": "x", "start_ns": "soon", "duration_s": 1, "faults": []}',
        '{"recording": "x", "start_ns": 1, "duration_s": 1, "faults": [{"kind": "k", "from_s": 1,'
        '"components": ["a"], "layer": "cellar"}]}',
        '{"recording": "x", "start_ns": 1, "duration_s": 1, "faults": [{"kind": "k", "from_s": 1,'
        '"components": []}]}',
        '{"recording": "x", "start_ns": 1, "duration_s": 1, "faults": [{"kind": "k", "from_s": 1,'
        '"components": ["a"], "to_s": 0}]}',
    ],
)  # fmt: skip
def test_what_is_no_truth_is_refused_with_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    """Whatever is wrong with it."""
    path = tmp_path / "x.truth.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        Labels.read(path)
