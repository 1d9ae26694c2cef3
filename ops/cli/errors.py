"""Exit codes, and the one exception by which a subcommand ends with a plain sentence."""

from typing import Final

from schemas.process.ending import INTERRUPTED_CODE

FOUND: Final = 1  # a fault, or a check that failed
USAGE: Final = 2
ENVIRONMENT: Final = 3
DAMAGED: Final = 4  # what could be read of a damaged input was used
INCOMPLETE: Final = 5  # the input lacks what an answer needs
STOPPED: Final = INTERRUPTED_CODE


class CliError(Exception):
    """Ends the command with `message` on standard error and `exit_code`."""

    def __init__(self, message: str, exit_code: int = ENVIRONMENT) -> None:
        self.exit_code = exit_code
        super().__init__(message)
