"""Where the machine code of the kernels is kept."""

from pathlib import Path
from types import ModuleType

import pytest

import ops.recording.message_kernel
import streams.columns.round_kernel
from schemas.columns import compiled

KERNELS = (ops.recording.message_kernel, streams.columns.round_kernel)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("streams", "streams/columns/round_kernel.py"),
        ("streams", "schemas/topics.py"),
        ("ops", "ops/recording/message_plan.py"),
        ("ops", "schemas/columns/wire.py"),
    ],
)
def test_the_folder_changes_with_all_that_goes_into_a_kernel(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    """A kernel has numbers of other modules in it, those of its plan's instructions above all."""
    before = compiled.cache_folder(package)
    read, changed = Path.read_bytes, []

    def other(path: Path) -> bytes:
        found = path.as_posix().endswith(name)
        changed.extend([path] * found)
        return read(path) + b"#" * found

    monkeypatch.setattr(Path, "read_bytes", other)
    after = compiled.cache_folder(package)
    assert before is not None
    assert after is not None
    assert changed
    if before != after:
        after.rmdir()
    assert before != after


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda module: module.__name__)
def test_all_that_a_kernel_imports_goes_into_the_digest(kernels: ModuleType) -> None:
    """No kernel has parts of another package than its own and the contract."""
    own = kernels.__name__.partition(".")[0]
    from_elsewhere = {
        value.__module__
        for value in vars(kernels).values()
        if hasattr(value, "py_func") and value.__module__.partition(".")[0] not in (own, "schemas")
    }
    assert not from_elsewhere
