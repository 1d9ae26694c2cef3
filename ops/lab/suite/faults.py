"""Injects the lab's faults again and again and holds each verdict against the lab's truth."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ops.demo.scoreboard import Scoreboard
from ops.lab.lab import Lab
from ops.lab.suite.cases import Case
from ops.log.watch import Watch
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent

# A verdict may still be refined while it is young; then it counts.
SETTLE_S: Final = 4.0
CALM_TIMEOUT_S: Final = 90.0
# Time that must pass without anomaly or lost probe before the next fault, three rounds and
# three to spare; the time in which a fault waits for its resolve is part of it.
CALM_S: Final = 6.0
# Nothing is known of a time in which nobody looked.
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one injection; delays are None where the event never came.

    `calm_s` was waited before it. `right` says that the component is, and nothing else was
    blamed; `kind_right` that one of the verdicts bears a right name, too. `false` counts the
    faults that were opened beside one that names the right component, until all were resolved.
    """

    case: str
    calm_s: float = 0.0
    open_delay_s: float | None
    resolve_delay_s: float | None
    verdicts: tuple[tuple[str, str, str], ...]
    right: bool
    kind_right: bool
    false: int = 0


class FaultBench:
    """Runs cases on a healthy lab, one after another."""

    def __init__(self, lab: Lab, watch: Watch, check: Callable[[], None]) -> None:
        self._lab = lab
        self._watch = watch
        self._check = check
        self.board = Scoreboard()
        self._looked = self._uneasy = time.monotonic()

    @property
    def settings(self) -> KafkaSettings:
        """Where the lab's topics are."""
        return self._lab.config.settings

    def run(self, case: Case) -> Outcome:
        """Inject, wait for the verdict, heal, wait for the resolve.

        The verdict is right if the lab's fault is the only one that was opened
        since the injection, and component and layer of its last state before
        the heal are the injected ones; none at all is right of an excused one.
        """
        asked = time.monotonic()
        self.wait_calm()
        first = len(self.board.faults)
        injected = time.monotonic()
        self._lab.fault(case.kind, case.target, **case.params)
        patience = self._lab.kind.patience
        opened = self._until(lambda: len(self.board.faults) > first, case.timeout_s * patience)
        open_delay_s = time.monotonic() - injected if opened else None
        self._until(lambda: False, SETTLE_S * patience)
        latest = {f.fault_id: f for f in self.board.faults[first:]}
        self._lab.heal()
        healed = time.monotonic()
        resolved = self._until(lambda: not self._open(), CALM_TIMEOUT_S * patience)
        latest_after = {f.fault_id for f in self.board.faults[first:]}
        verdicts = tuple((f.component_id, f.layer.value, f.fault_kind) for f in latest.values())
        excused = case.excused and not latest_after
        return Outcome(
            case=case.name,
            calm_s=injected - asked,
            open_delay_s=open_delay_s,
            resolve_delay_s=time.monotonic() - healed if opened and resolved else None,
            verdicts=verdicts,
            right=excused or (_right(case, verdicts) and len(latest_after) == 1 and resolved),
            false=len(latest_after) - any(c in case.component_ids for c, _, _ in verdicts),
            kind_right=excused
            or any(
                component in case.component_ids
                and (not case.fault_kinds or kind in case.fault_kinds)
                for component, _, kind in verdicts
            ),
        )

    def healthy(self, seconds: float) -> list[FaultEvent]:
        """Watch the healthy lab and return the faults that were opened."""
        self.wait_calm()
        first = len(self.board.faults)
        self._until(lambda: False, seconds)
        return [f for f in self.board.faults[first:] if f.state is FaultLifecycle.OPEN]

    def wait_calm(self) -> None:
        """Wait until nothing has been wrong for a while.

        Raises
        ------
        TimeoutError
            If it does not become calm.
        """
        deadline = time.monotonic() + CALM_TIMEOUT_S * self._lab.kind.patience
        self._poll()
        while time.monotonic() < self._uneasy + CALM_S or self._open():
            self._poll()
            board = self.board
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the lab is not calm after {CALM_TIMEOUT_S:.0f} s: "
                    f"{board.open_anomalies} anomalies, loss {board.loss_ratio:.2%}, "
                    f"open faults {sorted(self._open())}"
                )

    def _open(self) -> set[str]:
        return {history.last.fault_id for history in self.board.view.faults.open()}

    def _poll(self) -> None:
        for seen in self._watch.poll(0.05):
            self.board.count_record(seen)
        now = time.monotonic()
        board = self.board
        unseen = now > self._looked + LOOK_S
        if unseen or board.open_anomalies or board.loss_ratio or not board.probes:
            self._uneasy = now
        self._looked = now
        self._check()

    def _until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._poll()
            if reached():
                return True
        return False


def _right(case: Case, verdicts: tuple[tuple[str, str, str], ...]) -> bool:
    return (
        len(verdicts) == 1
        and verdicts[0][0] in case.component_ids
        and verdicts[0][1] == case.layer.value
    )
