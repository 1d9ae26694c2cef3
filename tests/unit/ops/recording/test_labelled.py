"""Labelled recordings are diagnosed and scored: one whose fault is known, and damaged ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from arena.faults.truth import Verdict
from localizer.config import build_config as localizer_config
from ops.cli.app import build
from ops.cli.errors import DAMAGED, CliError
from ops.recording import labelled
from ops.recording.export import export
from ops.recording.labelled import LabelledError, judge_folder, judged, pack
from ops.recording.labels import Label, Labels
from schemas.enums import Layer
from schemas.units import SECOND_NS
from streams.config import build_config as worker_config
from tests.unit.arena.worlds import at
from tests.unit.ops.recording.test_diagnosis import LINK, forget_a_partition, incident

CUT = Label(
    kind="connectivity", name="cut", layer=Layer.UNDERLAY, from_s=25.0, to_s=35.0,
    components=(LINK,), hard=True,
)  # fmt: skip
BUSY = Label(kind="agent-starve", from_s=40.0, to_s=50.0, components=("agent-h1",))
TRUTH = Labels(recording="a", start_ns=at(0), duration_s=45.0, faults=(CUT,), confounders=(BUSY,))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one recording, packed, and its truth."""
    folder = tmp_path_factory.mktemp("suite")
    plain = tmp_path_factory.mktemp("plain") / TRUTH.recording
    export(incident(), plain)
    pack(plain, folder / "a.tar.xz")
    TRUTH.write(folder)
    return folder


def said(component: str, opened_s: float, layer: Layer = Layer.UNDERLAY) -> Verdict:
    """Return a verdict on a component, opened so long after the beginning."""
    return Verdict(
        fault_id=f"{component}-{opened_s}", kind="connectivity", layer=layer,
        candidates=(component,), opened_ns=at(0) + round(opened_s * SECOND_NS), decided=True,
        pages=layer is not Layer.HOST,
    )  # fmt: skip


def test_the_known_fault_of_a_packed_recording_is_found(suite: Path) -> None:
    """By the name of its cable, once, seconds after it began."""
    result = CliRunner().invoke(build(), ["lab", "score", str(suite), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    (row,) = found["recordings"][0]["rows"]
    assert (row["outcome"], row["fault"], row["place"]) == ("found", "cut", 1)
    assert 0 < row["delay_s"] < 10
    assert found["scores"]["recall_hard"]["value"] == found["scores"]["precision"]["value"] == 1.0
    shown = CliRunner().invoke(build(), ["lab", "score", str(suite)]).output
    assert "no fault: agent-starve at agent-h1" in shown
    assert "false pages  0" in shown


def test_a_page_for_a_confounder_is_false_and_a_warning_about_its_agent_is_not() -> None:
    """Nobody is called for a verdict about an agent."""
    found = judged(
        TRUTH, [said(LINK, 27.0), said("vsw:h1", 42.0), said("agent-h1", 43.0, Layer.HOST)]
    )
    assert [v.candidates[0] for v in found.matching.false] == ["vsw:h1"]
    assert not found.matching.missed
    assert [f.kind for f in judged(TRUTH, []).matching.missed] == ["connectivity"]


def test_an_agent_that_is_the_fault_is_found_by_a_warning() -> None:
    """A killed agent has no verdict that pages."""
    killed = replace(CUT, kind="agent_dead", layer=Layer.HOST, components=("agent-h1",))
    found = judged(replace(TRUTH, faults=(killed,)), [said("agent-h1", 30.0, Layer.HOST)])
    assert len(found.matching.pairs) == 1


def _judge(folder: Path) -> None:
    detection = worker_config({}, {}).detection()
    list(judge_folder(folder, detection, localizer_config({}, {}), lambda _: None))


def test_a_recording_whose_rounds_are_not_all_read_is_not_scored(tmp_path: Path) -> None:
    """As the damage of any other file: what is not in it cannot be found."""
    export(incident(), tmp_path / TRUTH.recording)
    TRUTH.write(tmp_path)
    forget_a_partition(tmp_path / TRUTH.recording)
    with pytest.raises(LabelledError, match=r"a\.truth\.json: probe.round.v1.avro: damaged at"):
        _judge(tmp_path)


def test_a_folder_without_truths_and_a_damaged_archive_are_told(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by a sentence with the file; the command line exits as for any damaged input."""
    with pytest.raises(LabelledError, match="holds no truth"):
        _judge(tmp_path)
    TRUTH.write(tmp_path)
    with pytest.raises(LabelledError, match=r"a\.truth\.json"):
        _judge(tmp_path)
    whole = (suite / "a.tar.xz").read_bytes()
    (tmp_path / "a.tar.xz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LabelledError, match=r"a\.truth\.json"):
        _judge(tmp_path)
    result = CliRunner().invoke(build(), ["lab", "score", str(tmp_path)])
    assert isinstance(result.exception, CliError)
    assert result.exception.exit_code == DAMAGED
    monkeypatch.setattr(labelled, "MOST_BYTES", 1_000)
    with pytest.raises(LabelledError, match="more than 1000 bytes"):
        _judge(suite)
