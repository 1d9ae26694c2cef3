"""When a job writes checkpoints and evaluates, and how long these pauses take."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses of training: each some iterations, some milliseconds long."""

    checkpoint_steps: int
    checkpoint_ms: int
    evaluation_steps: int
    evaluation_ms: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return those that the launcher was told.

        >>> Pauses.of({"checkpoint_steps": 60, "checkpoint_ms": 3_000, "evaluation_steps": 100,
        ...            "evaluation_ms": 4_000, "width": 256}).saves(59)
        True
        """
        return cls(**{name: config[name] for name in cls.__dataclass_fields__})

    def saves(self, step: int) -> bool:
        """Return whether an iteration begins with a checkpoint."""
        return step % self.checkpoint_steps == self.checkpoint_steps - 1

    def evaluates(self, step: int) -> bool:
        """Return whether an iteration begins with an evaluation."""
        return step % self.evaluation_steps == self.evaluation_steps - 1

    def pause(self, rank: int, step: int) -> None:
        """Take as long as a larger model takes to be saved and evaluated, where that is due."""
        if self.saves(step) and rank == 0:
            # All others wait for rank 0 in their next collective.
            time.sleep(self.checkpoint_ms / 1e3)
        if self.evaluates(step):
            # Each rank evaluates its own share, and nobody waits for anybody.
            time.sleep(self.evaluation_ms / 1e3)
