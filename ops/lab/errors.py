"""Errors of a lab: a wrong request, or one that it cannot carry out."""


class LabUsageError(ValueError):
    """A shape, a fault, a name that makes no sense; the message says what would."""


class LabError(RuntimeError):
    """The lab cannot do what it is asked to do here and now; the message says why."""
