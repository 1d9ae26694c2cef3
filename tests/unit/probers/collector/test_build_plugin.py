"""The plugin is compiled where there is a compiler, and says so where there is none."""

from pathlib import Path

import pytest

from probers.collector import cli
from probers.collector.build_plugin import NAME
from tests.nccl_stand_in import HAS_COMPILER


@pytest.mark.skipif(not HAS_COMPILER, reason="needs a C compiler")
def test_a_command_compiles_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs neither a broker nor a rank, and prints where the plugin is."""
    assert cli.main(["--build-plugin", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "new" / NAME)
    assert (tmp_path / "new" / NAME).read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    """With the code for what is missing around a process."""
    monkeypatch.setenv("CC", compiler)
    assert cli.main(["--build-plugin", str(tmp_path)]) == cli.ENVIRONMENT
