"""What the collector of garbage need not look at: paths that stay, and messages that go soon."""

import gc
from typing import Final

# A batch is some thousand message objects, none of which holds itself; the collector's default,
# a pass after 700 of them, took a tenth of a worker's time and found nothing.
THRESHOLDS: Final = (100_000, 20, 100)


def settle() -> None:
    """Leave what is there now out of all later passes, and make passes rarer.

    To be called again whenever something large goes: what was left out is never freed else,
    and a partition's machine holds itself.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
