"""Numbers, lists and times for people."""

import re
from collections.abc import Iterable
from typing import Final

MS_PER_S: Final = 1_000
# Names listed in one line; the rest is counted.
SHOWN: Final = 5
# Control characters, and those that turn the direction of the text around them; as in the page's
# `lib/text.js`.
UNSEEN: Final = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb]"
)


def some(items: Iterable[str]) -> str:
    """Join the first few; say how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - SHOWN:,} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural where it is.

    >>> counted(1, 'agent'), counted(2000, 'agent')
    ('1 agent', '2,000 agents')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age(ms: int) -> str:
    """Return milliseconds in the unit that people would choose.

    >>> age(1500), age(600_000)
    ('2 s', '10 min')
    """
    seconds = max(0, ms) / MS_PER_S
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def visible(text: str) -> str:
    r"""Return a text in which nothing hides: what cannot be seen becomes its number.

    >>> print(visible("a\u202eb"))
    a\u202eb
    """
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
