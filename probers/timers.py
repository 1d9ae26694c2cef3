"""Things done every so often on the monotonic clock. Pure."""


class Every:
    """Due once per interval; what was slept through is not made up for.

    Parameters
    ----------
    slack_ns : how much too early it may be done when the process is awake anyway:
        a wake-up less is a tenth of a millisecond of a core
    """

    def __init__(self, interval_ns: int, now_ns: int, slack_ns: int = 0) -> None:
        self._interval_ns = interval_ns
        self._slack_ns = slack_ns
        self.due_ns = now_ns

    def take(self, now_ns: int) -> bool:
        """Whether it is time; if so, the next time is one interval later."""
        if now_ns < self.due_ns - self._slack_ns:
            return False
        self.due_ns = max(self.due_ns + self._interval_ns, now_ns + self._interval_ns // 2)
        return True
