"""What can go wrong in the worker, by what is done about it."""

from schemas.process.errors import CannotRunError


class WorkerSetupError(CannotRunError):
    """The worker cannot start: the message says what is missing and what to do."""


class SessionLostError(RuntimeError):
    """The worker's hold on its partitions is in doubt: drop all, take them anew.

    Nothing is lost by it: what was not committed is read again, what was
    published is recognised.
    """
