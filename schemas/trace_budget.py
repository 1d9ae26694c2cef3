"""How many traces an agent may begin while it loses probes, as its ping list tells it.

A dead spine cuts a hundred thousand 5-tuples at once. To place it, traces of a few agents are
enough: each shows what was passed before the packets were lost. What all of them would trace is
bounded by what a localizer takes in beside everything else, and each agent gets its part.

The budget is a Kafka header of the list, not a field of it: agents of earlier versions read such
lists, too, and keep their own limits, as do agents whose list has none.
"""

from collections.abc import Sequence
from typing import Final

# Traces that all agents may begin at once. The localizer takes in 100,000 in 2.2 s of CPU
# (`python -m ops.bench scale --only localizer-start`): these cost it half a second.
CLUSTER_BURST: Final = 20_000
# What an agent begins at once without being told. No more is told: one host's RNICs have some
# dozen other ends.
MOST: Final = 64
# Fewer would leave out RNICs of a host with eight where each has lost something else: they are
# taken in turn.
LEAST: Final = 4
HEADER: Final = "trace-budget"


def trace_budget(agents: int) -> int:
    """Return an agent's budget in a cluster of so many: traces at once because of loss.

    A power of two, so that few lists differ by it.

    >>> [trace_budget(n) for n in (1, 300, 1_000, 5_000, 100_000)]
    [64, 64, 16, 4, 4]
    """
    budget = MOST
    while budget > LEAST and budget * agents > CLUSTER_BURST:
        budget //= 2
    return budget


def budget_header(agents: int) -> tuple[str, bytes]:
    """Return the header of a list in a cluster of so many agents."""
    return HEADER, str(trace_budget(agents)).encode()


def budget_told(headers: Sequence[tuple[str, str | bytes | None]]) -> int | None:
    """Return the budget that a list tells; None: it tells none that could be meant.

    >>> [budget_told([("trace-budget", text)]) for text in (b"16", b"-1", b"9" * 5_000)]
    [16, None, None]
    """
    for name, value in headers:
        if name == HEADER and value is not None:
            text = value if isinstance(value, str) else value.decode(errors="replace")
            # Longer ones tell no budget; of 4,300 digits Python makes no number.
            known = len(text) <= len(str(MOST)) and text.isascii() and text.isdecimal()
            if known and LEAST <= int(text) <= MOST:
                return int(text)
    return None
