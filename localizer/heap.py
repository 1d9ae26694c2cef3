"""What the collector of garbage need not look at: a million paths that stay."""

import gc
from typing import Final

# Decisions make records by the hundred thousand, none of which holds itself: the
# collector's default, a pass after 700 of them, finds nothing and takes its time. In a
# storm a decision makes a million, of which most are gone when it ends.
THRESHOLDS: Final = (1_000_000, 20, 100)


def settle() -> None:
    """Leave what is there now out of all later passes, and make passes rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
