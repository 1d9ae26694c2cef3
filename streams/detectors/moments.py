"""What detectors see of the last answers of all 5-tuples, every few seconds."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from streams.config import DetectionConfig
from streams.detectors.base import Decision, Detector, FirstOpen, FlowNumbers, Moved
from streams.detectors.lookback import LookBack
from streams.detectors.recent import RecentProbes


@dataclass(frozen=True, slots=True)
class Moment:
    """A time at which detectors look at the last answers of all 5-tuples.

    Attributes
    ----------
    grid_ns
        Arrival.
    active_ns
        The partition's active time.
    first_open
        Gives the index of an agent's first open window.
    now_ns
        Gives the present time by an agent's clock.
    flows
        Gives the 5-tuples of rows in `RecentProbes.flows`, and their rows in other tables.
    """

    grid_ns: int
    active_ns: int
    first_open: FirstOpen
    now_ns: Callable[[str], int]
    flows: FlowNumbers


class MomentDetector(Detector):
    """Observes the last answers of all 5-tuples, whenever open anomalies are repeated.

    Parameters
    ----------
    config
        Settings.
    recent
        The last answers.
    lookback
        What is usual of each 5-tuple; such a detector does not change it.
    """

    def __init__(self, config: DetectionConfig, recent: RecentProbes, lookback: LookBack) -> None:
        super().__init__(config)
        self.recent = recent
        self.lookback = lookback

    @abstractmethod
    def observe_moment(self, moment: Moment) -> list[Decision]:
        """Return what the last answers decide."""

    def observe_closed(self, moved: Moved) -> None:
        """Observe that windows of some agents have closed, and entered the look-back."""
        del moved

    def forget_row(self, row: int) -> None:
        """Forget a 5-tuple that was not probed for long, by its row in `recent`."""
