"""The examples in docstrings do what they say.

Only modules whose text holds an example are imported: collecting them all would take seconds.
"""

import doctest
import importlib
import re

import pytest

from tests import PACKAGES, ROOT

# What may be missing on a machine that runs all tests.
OPTIONAL = ("pyverbs", "quixstreams")
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)


def examples_in_text() -> dict[str, int]:
    """Return the modules that hold examples, with the number of prompts in their text."""
    counts = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): len(
            PROMPT.findall(path.read_text(encoding="utf-8"))
        )
        for package in (*PACKAGES, "tests")
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(("name", "prompts"), examples_in_text().items())
def test_examples_in_docstrings_run(name: str, prompts: int) -> None:
    """Each example prints what stands below it, and none stands where doctest does not look."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    for test in found:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
    assert sum(len(test.examples) for test in found) == prompts
