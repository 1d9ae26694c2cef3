"""What the commands of labs share: the choice of a lab, and its errors as messages."""

from collections.abc import Iterator
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
