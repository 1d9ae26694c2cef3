"""Whether a command line that a deployment calls is one of this program."""

from functools import cache
from typing import Any

import typer

from ops.cli.app import build


@cache
def _whole() -> Any:
    return typer.main.get_command(build())


def runs(words: list[str]) -> bool:
    """Return whether the words before the first option are a command, and not a group of them."""
    found = _whole()
    for word in words:
        if word.startswith("-"):
            break
        found = getattr(found, "commands", {}).get(word)
    return found is not None and not hasattr(found, "commands")
