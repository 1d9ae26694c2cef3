"""Equal names as one object, for as long as somebody else holds it.

`sys.intern` does the same in Python's own table. That one holds the names of all code as well, and
never becomes smaller: names that come and go doubled it, by 1 to 2 MB a process, and after a flood
of unknown names it stayed as large as it had been.
"""

from sys import getrefcount
from typing import Final

# References to a name that nobody else holds: key and value of the table, the list of names, the
# loop's variable and the function's argument.
UNUSED: Final = 5


class _Names:
    """The shared names of this process."""

    def __init__(self) -> None:
        self.table: dict[str, str] = {}


_SHARED: Final = _Names()


def shared(name: str) -> str:
    """Return the one object for an equal name, which may be this one; from any thread.

    It saves memory where many records hold the same name, and makes comparisons quick.
    """
    return _SHARED.table.setdefault(name, name)


def forget_unused() -> None:
    """Forget the names that nobody holds any more; looks at all of them.

    Names that other threads share meanwhile may be forgotten, too: the next equal one is another
    object.
    """
    names = list(_SHARED.table)
    _SHARED.table = {name: name for name in names if getrefcount(name) > UNUSED}
