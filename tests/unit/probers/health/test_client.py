"""Asking an agent about its health: a wrong question says nothing about the agent."""

import pytest

from probers.health.client import USAGE, main


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon"])
def test_a_timeout_that_is_none_is_wrong_settings(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 would say of an agent that it is not ready."""
    with pytest.raises(SystemExit) as ended:
        main(["--health", "127.0.0.1:9464", f"--timeout-s={text}"])
    assert ended.value.code == USAGE
    assert "more than 0" in capsys.readouterr().err
