"""Injects the lab's faults again and again and holds each verdict against the lab's truth."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.lab.lab import Lab
from ops.scoreboard import Scoreboard
from ops.watch import Watch
from schemas.enums import FaultLifecycle, Layer
from schemas.records import FaultEvent

# A verdict may still be refined while it is young; then it counts.
SETTLE_S: Final = 4.0
CALM_TIMEOUT_S: Final = 90.0
# Event time that must pass without anomaly or open fault before the next fault:
# the windows before it are then healthy, and its damping time has passed.
CALM_S: Final = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of fault: what to inject where, and what the verdict must be.

    `component_ids` are the right answers; more than one where the evidence
    cannot tell them apart.
    """

    name: str
    kind: str
    target: str
    params: Mapping[str, Any] = field(default_factory=dict)
    component_ids: tuple[str, ...]
    layer: Layer
    timeout_s: float


LINK: Final = "link:leaf:p0-0--spine:0"
CASES: Final = (
    Case(
        name="link cut", kind="link-cut", target=LINK,
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="10 % loss", kind="link-loss", target=LINK, params={"percent": 10.0},
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="+5 ms delay", kind="link-delay", target=LINK, params={"ms": 5.0},
        component_ids=(LINK,), layer=Layer.UNDERLAY, timeout_s=60,
    ),
    Case(
        name="switch off", kind="switch-off", target="spine:1",
        component_ids=("spine:1",), layer=Layer.UNDERLAY, timeout_s=15,
    ),
    Case(
        name="flow-table hole", kind="flow-hole", target="vsw:h1", params={"dst": "job1-w0/r0"},
        component_ids=("vsw:h1",), layer=Layer.OVERLAY, timeout_s=15,
    ),
    Case(
        name="agent killed", kind="agent-kill", target="agent-h2",
        component_ids=("agent-h2",), layer=Layer.HOST, timeout_s=20,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one injection; delays are None where the event never came."""

    case: str
    open_delay_s: float | None
    resolve_delay_s: float | None
    verdicts: tuple[tuple[str, str, str], ...]
    right: bool


class FaultBench:
    """Runs cases on a healthy lab, one after another."""

    def __init__(self, lab: Lab, watch: Watch, check: Callable[[], None]) -> None:
        self._lab = lab
        self._watch = watch
        self._check = check
        self.board = Scoreboard()

    def run(self, case: Case) -> Outcome:
        """Inject, wait for the verdict, heal, wait for the resolve.

        The verdict is right if the lab's fault is the only one that was opened
        since the injection, and component and layer of its last state before
        the heal are the injected ones.
        """
        self.wait_calm()
        first = len(self.board.faults)
        injected = time.monotonic()
        self._lab.fault(case.kind, case.target, **case.params)
        opened = self._until(lambda: len(self.board.faults) > first, case.timeout_s)
        open_delay_s = time.monotonic() - injected if opened else None
        self._until(lambda: False, SETTLE_S)
        latest = {f.fault_id: f for f in self.board.faults[first:]}
        self._lab.heal()
        healed = time.monotonic()
        resolved = self._until(lambda: not self._open(), CALM_TIMEOUT_S)
        latest_after = {f.fault_id for f in self.board.faults[first:]}
        verdicts = tuple((f.component_id, f.layer.value, f.fault_kind) for f in latest.values())
        return Outcome(
            case=case.name,
            open_delay_s=open_delay_s,
            resolve_delay_s=time.monotonic() - healed if opened and resolved else None,
            verdicts=verdicts,
            right=len(latest_after) == 1
            and len(verdicts) == 1
            and verdicts[0][0] in case.component_ids
            and verdicts[0][1] == case.layer.value
            and resolved,
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
        deadline = time.monotonic() + CALM_TIMEOUT_S
        calm_since = time.monotonic()
        while time.monotonic() < calm_since + CALM_S:
            self._poll()
            board = self.board
            if self._open() or board.open_anomalies or board.loss_ratio or not board.probes:
                calm_since = time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the lab is not calm after {CALM_TIMEOUT_S:.0f} s: "
                    f"{len(board.open_anomalies)} anomalies, loss {board.loss_ratio:.2%}, "
                    f"open faults {sorted(self._open())}"
                )

    def _open(self) -> set[str]:
        latest = {f.fault_id: f.state for f in self.board.faults}
        return {i for i, state in latest.items() if state is not FaultLifecycle.RESOLVED}

    def _poll(self) -> None:
        for seen in self._watch.poll(0.05):
            self.board.add(seen)
        self._check()

    def _until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._poll()
            if reached():
                return True
        return False
