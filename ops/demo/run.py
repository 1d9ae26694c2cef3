"""The demonstration: a link of a healthy lab breaks, the verdict names it, it heals."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from ops.demo.scoreboard import Scoreboard
from ops.log.watch import WatchedRecord
from schemas.enums import FaultLifecycle
from schemas.records import FaultEvent

# How long each step may take before the demonstration is given up.
HEALTHY_TIMEOUT_S: Final = 60.0
SKELETON_TIMEOUT_S: Final = 60.0
VERDICT_TIMEOUT_S: Final = 20.0
RESOLVE_TIMEOUT_S: Final = 30.0
# Share of the 5-tuples whose path must be known before a link is broken: the
# localizer can only blame links that it has seen.
TRACED_SHARE: Final = 0.95


class Stage(Protocol):
    """What the demonstration acts on."""

    def break_link(self) -> str:
        """Cut a link of the fabric and return its component id."""
        ...

    def heal(self) -> None:
        """Mend what was broken."""
        ...

    def check(self) -> None:
        """Raise if a process has ended."""
        ...


class Source(Protocol):
    """Where the records come from: an `ops.log.watch.Watch`."""

    def poll(self, timeout_s: float) -> Iterator[WatchedRecord]:
        """Yield what has come within the timeout."""
        ...


class Screen(Protocol):
    """What the demonstration shows itself on."""

    def step(self, text: str) -> None:
        """Say what happens now."""
        ...

    def update(self, board: Scoreboard, since_fault_s: float | None) -> None:
        """Draw the numbers."""
        ...

    def verdict(self, fault: FaultEvent, since_fault_s: float) -> None:
        """Show a transition of a fault."""
        ...


class DemoFailedError(RuntimeError):
    """A step did not come to its end in time; the message says which and what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What came out: the link that was cut, the fault that was opened, the delays."""

    link: str
    opened: FaultEvent
    resolved: FaultEvent
    open_delay_s: float
    resolve_delay_s: float

    @property
    def named_the_link(self) -> bool:
        """Whether the last verdict before the resolve blamed the link."""
        return self.resolved.decided and self.resolved.component_id == self.link


class Demo:
    """Runs the steps one after another over what the topics show."""

    def __init__(self, watch: Source, stage: Stage, screen: Screen, agents: int) -> None:
        self._watch = watch
        self._stage = stage
        self._screen = screen
        self._agents = agents
        self._board = Scoreboard()
        self._fault_at: float | None = None

    def run(self) -> DemoResult:
        """Run all steps.

        Raises
        ------
        DemoFailedError
            If a step does not come to its end in time.
        """
        self._screen.step("waiting until every agent probes and every path is traced")
        self._until(self._healthy, HEALTHY_TIMEOUT_S, "the lab did not become healthy")
        self._screen.step("waiting for the traffic skeleton: ping lists shrink to it")
        self._until(self._on_skeleton, SKELETON_TIMEOUT_S, "no skeleton was inferred")
        self._until(self._healthy, HEALTHY_TIMEOUT_S, "the new targets are not all probed")
        if self._board.faults:
            raise DemoFailedError(
                f"a fault was opened in the healthy lab: {self._board.faults[-1].summary}"
            )
        link = self._stage.break_link()
        self._fault_at = time.monotonic()
        self._screen.step(f"cut {link}: nobody tells the pipeline")
        opened = self._fault(
            lambda f: f.state is not FaultLifecycle.RESOLVED and f.component_id == link,
            VERDICT_TIMEOUT_S,
            "no verdict named the link",
        )
        open_delay_s = self._since_fault()
        self._stage.heal()
        self._fault_at = time.monotonic()
        self._screen.step(f"healed {link}")
        resolved = self._fault(
            lambda f: f.state is FaultLifecycle.RESOLVED and f.fault_id == opened.fault_id,
            RESOLVE_TIMEOUT_S,
            "the fault was not resolved",
        )
        return DemoResult(
            link=link,
            opened=opened,
            resolved=resolved,
            open_delay_s=open_delay_s,
            resolve_delay_s=self._since_fault(),
        )

    def _healthy(self) -> bool:
        board = self._board
        return (
            board.running_agents >= self._agents
            and board.targets_active > 0
            and board.targets_waiting == 0
            # A 5-tuple that is broken and then no longer probed would stay broken for a minute.
            and board.lists_followed
            and bool(board.view.progress)
            and board.loss_ratio == 0.0
            and not board.open_anomalies
            and board.traced_flows >= TRACED_SHARE * board.wanted_flows > 0
        )

    def _on_skeleton(self) -> bool:
        return self._board.runtime_lists >= self._agents

    def _since_fault(self) -> float:
        return 0.0 if self._fault_at is None else time.monotonic() - self._fault_at

    def _take(self, seen: WatchedRecord) -> None:
        self._board.count_record(seen)
        if isinstance(seen.record, FaultEvent):
            self._screen.verdict(seen.record, self._since_fault())

    def _poll(self) -> list[WatchedRecord]:
        taken = list(self._watch.poll(0.05))
        for seen in taken:
            self._take(seen)
        self._stage.check()
        self._screen.update(self._board, None if self._fault_at is None else self._since_fault())
        return taken

    def _until(self, reached: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not reached():
            if time.monotonic() > deadline:
                raise DemoFailedError(f"{otherwise} within {timeout_s:.0f} s ({self._state()})")
            self._poll()

    def _fault(
        self, wanted: Callable[[FaultEvent], bool], timeout_s: float, otherwise: str
    ) -> FaultEvent:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for seen in self._poll():
                if isinstance(seen.record, FaultEvent) and wanted(seen.record):
                    return seen.record
        raise DemoFailedError(f"{otherwise} within {timeout_s:.0f} s ({self._state()})")

    def _state(self) -> str:
        board = self._board
        return (
            f"{board.running_agents} agents running, {board.targets_active} targets active, "
            f"{board.targets_waiting} waiting, {board.traced_flows} of {board.wanted_flows} "
            f"5-tuples traced, {board.loss_ratio:.1%} loss, {board.open_anomalies} "
            f"anomalies open, {board.runtime_lists} lists from the skeleton, faults: "
            f"{[(f.state.value, f.component_id, f.fault_kind) for f in board.faults]}"
        )
