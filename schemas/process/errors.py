"""Why a process ends by itself."""


class CannotRunError(RuntimeError):
    """Something around the process is not as it must be; the message says what to do.

    The process ends with `exit_code`; a new one may well run.
    """

    exit_code = 3
