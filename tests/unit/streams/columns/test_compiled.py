"""Where the machine code of the kernels is kept."""

from pathlib import Path

import pytest

compiled = pytest.importorskip("streams.columns.compiled")


@pytest.mark.parametrize(
    "name", ["streams/columns/interpreter.py", "schemas/topics.py", "ops/recording/message_plan.py"]
)
def test_the_folder_changes_with_all_that_goes_into_a_kernel(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A kernel has numbers of other modules in it, those of its plan's instructions above all."""
    before = compiled.cache_folder()
    read, changed = Path.read_bytes, []

    def other(path: Path) -> bytes:
        found = path.as_posix().endswith(name)
        changed.extend([path] * found)
        return read(path) + b"#" * found

    monkeypatch.setattr(Path, "read_bytes", other)
    after = compiled.cache_folder()
    assert changed
    if before != after:
        after.rmdir()
    assert before != after
