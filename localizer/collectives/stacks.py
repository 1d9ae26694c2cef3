"""Where ranks launched their last operation, by the stacks that dumps hold."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from schemas.records import CollectiveSnapshot

# Frames of the framework say nothing of the program.
FRAMEWORK: Final = ("-packages/torch/", "/torch/distributed/", "<frozen ")
MAX_FRAMES: Final = 3


def where_ranks_are(
    snapshots: Sequence[CollectiveSnapshot],
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the program's innermost frames of each rank's last launch, with these ranks.

    Few ranks first: what differs from the others stands out. It is where a rank was when it
    launched, not where it is now.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for snapshot in snapshots:
        if snapshot.operations and snapshot.operations[-1].stack:
            stack = snapshot.operations[-1].stack
            own = [f for f in stack if not any(mark in f for mark in FRAMEWORK)] or list(stack)
            alike[" ← ".join(own[:MAX_FRAMES])].append(snapshot.rank)
    ordered = sorted(alike.items(), key=lambda item: (len(item[1]), item[1]))
    return tuple((text, tuple(ranks)) for text, ranks in ordered)
