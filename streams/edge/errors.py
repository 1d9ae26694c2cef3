"""What can go wrong in the worker while it runs."""


class SessionLostError(RuntimeError):
    """The worker's hold on its partitions is in doubt: drop all, take them anew.

    Nothing is lost by it: what was not committed is read again, what was
    published is recognised.
    """
