"""What the commands of labs share: the choice of a lab, and its errors as messages."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ops.cli.errors import USAGE, CliError

Name = Annotated[str, typer.Option("--name", help="Which lab, where several are up")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the lab's own errors into sentences with an exit code."""
    from ops.lab.errors import LabError, LabUsageError
    from ops.running.processes import ChildDiedError

    try:
        yield
    except LabUsageError as error:
        raise CliError(str(error), USAGE) from error
    except (LabError, ChildDiedError, OSError) as error:
        raise CliError(str(error)) from error


@contextmanager
def own_lab(kind: str) -> Iterator[Callable[[str], None]]:
    """Run a block that brings up a lab and all processes; give what prints its progress.

    Raises
    ------
    CliError
        If this machine has no such lab, or its broker or a process does not come up.
    """
    from rich.console import Console

    from ops.broker.errors import BrokerError
    from ops.lab.kind import lab_kind
    from ops.running.pipeline import NotReadyError
    from schemas.process.signals import interruptible

    with plain_errors():
        lacking = lab_kind(kind).missing()
        if lacking is not None:
            raise CliError(f"no {kind} lab here: {lacking}")
        console = Console(stderr=True, highlight=False)
        try:
            with interruptible():
                yield lambda text: console.print(
                    f"{time.strftime('%H:%M:%S')}  {text}", markup=False
                )
        except (BrokerError, NotReadyError, TimeoutError) as error:
            raise CliError(str(error)) from error
