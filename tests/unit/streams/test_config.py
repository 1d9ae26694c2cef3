"""Settings: where they come from, what is refused, and the command line."""

from dataclasses import fields
from pathlib import Path

import pytest

from schemas.process.settings import ConfigError
from schemas.units import SECOND_NS
from streams.__main__ import COMMAND, main
from streams.config import DetectionConfig, WorkerConfig, build_config


def test_defaults_are_the_detectors_defaults() -> None:
    """The operator's defaults and the core's are the same."""
    assert WorkerConfig().detection() == DetectionConfig()
    assert build_config({}, {}) == WorkerConfig()


def test_flags_win_over_environment_over_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of the sources, each seen once."""
    monkeypatch.setenv("SKELETONHUNTER_WORKER_WINDOW_S", "20")
    monkeypatch.setenv("SKELETONHUNTER_WORKER_COMMIT_S", "2")
    config = build_config({"window_s": "10"}, {"window_s": 5, "commit_s": 3, "stall_s": 60})
    assert (config.window_s, config.commit_s, config.stall_s) == (10, 2, 60)
    assert config.detection().window_ns == 10 * SECOND_NS


def test_every_fault_is_named_at_once() -> None:
    """Unknown key, wrong kind, out of bounds, in one message with the bounds."""
    table = {"windows": 5, "idle_s": "soon", "lookback_windows": 3, "stall_s": True}
    with pytest.raises(ConfigError) as caught:
        build_config({"session_timeout_s": "1"}, table)
    text = str(caught.value)
    for part in (
        "windows: no such setting",
        "idle_s",
        "from 5 to 20",
        "stall_s",
        "--session-timeout-s=1",
    ):
        assert part in text


@pytest.mark.parametrize(
    "table", [{"window_s": 7}, {"window_s": 1.0005}, {"lookback_windows": 5.5}]
)
def test_values_that_do_not_fit_are_refused(table: dict[str, float]) -> None:
    """Blocks are whole windows, windows whole milliseconds, counts whole numbers."""
    with pytest.raises(ConfigError):
        build_config({}, table)


def test_trend_can_be_off() -> None:
    """Without the long-term test any window length will do."""
    assert build_config({}, {"window_s": 7, "trend_window_s": 0}).detection().trend_ns == 0


def test_command_line_has_every_setting() -> None:
    """Each setting is an option; the help shows an example."""
    text = COMMAND.parser().format_help()
    assert all("--" + f.name.replace("_", "-") in text for f in fields(WorkerConfig))
    assert "Example:" in text


def test_usage_errors_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong setting ends with code 2 and names it; a missing broker with code 3."""
    config = tmp_path / "c.toml"
    config.write_text("[worker]\nwindow_s = 0\n", encoding="utf-8")
    assert main(["--config", str(config), "--bootstrap", "127.0.0.1:1"]) == 2
    assert "window_s" in capsys.readouterr().err


def test_no_broker_is_an_environment_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens: code 3 and the address."""
    monkeypatch.setattr("schemas.kafka.clients.FIRST_ASK_S", 0.1)
    assert main(["--bootstrap", "127.0.0.1:1", "--log-level", "ERROR"]) == 3
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_setting_that_there_is_not_is_answered_with_those_that_may_be_meant() -> None:
    """Of many settings the nearest are named; where none is near, all."""
    with pytest.raises(ConfigError, match=r"window_sec: no such setting; did you mean window_s"):
        build_config({}, {"window_sec": 3}, {})
    with pytest.raises(ConfigError, match=r"colour: no such setting; there are window_s, allowed"):
        build_config({}, {"colour": "red"}, {})
