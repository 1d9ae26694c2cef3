"""Flapping faults on a loop whose time the test moves, with a record of what is done."""

from ops.lab.events import EventLoop
from ops.lab.faults import FaultSpec
from ops.lab.flapping import Flapping
from schemas.enums import Layer
from schemas.units import MS_NS


class Bench:
    """A loop with a clock of its own, and what flapping has done on it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.loop = EventLoop(lambda: self.now_ns)
        self.active = {"f1"}
        self.done: list[tuple[int, str]] = []
        self.flapping = Flapping(
            self.loop,
            self.active,
            put=lambda _id, _spec: self.note("put"),
            take=lambda _id, _spec: self.note("take"),
            record=lambda action, _id, _spec: self.note(action),
        )

    def note(self, what: str) -> None:
        """Remember what was done, and when in milliseconds."""
        self.done.append((self.now_ns // MS_NS, what))

    def until(self, ms: int) -> None:
        """Let time pass, a hundredth of a second a step."""
        while self.now_ns < ms * MS_NS:
            self.now_ns += 10 * MS_NS
            self.loop.run_once(0)


def spec(kind: str, **params: float) -> FaultSpec:
    """Return a fault of a cable with a period of 200 ms, if it flaps."""
    return FaultSpec(
        kind=kind,
        target="link:a--b",
        layer=Layer.UNDERLAY,
        component_ids=("link:a--b",),
        params={"ms": 200.0} | params,
    )


def test_a_flapping_fault_is_out_and_in_again_by_half_periods_until_it_is_healed() -> None:
    """Each change is done first and told afterwards; nothing comes after the heal."""
    bench = Bench()
    bench.flapping.start("f1", spec("link-flap"))
    bench.until(310)
    turns = [(100, "take"), (100, "up"), (200, "put"), (200, "down"), (300, "take"), (300, "up")]
    assert bench.done == turns
    bench.active.clear()
    bench.until(1_000)
    assert bench.done == turns


def test_other_faults_stay_in() -> None:
    """A period alone makes no fault flap."""
    bench = Bench()
    bench.flapping.start("f1", spec("link-delay"))
    bench.until(1_000)
    assert not bench.done


def test_a_fault_with_a_duty_is_there_for_that_share_of_each_period() -> None:
    """The first turn is its own: it is there from the moment it was put in."""
    bench = Bench()
    bench.flapping.start("f1", spec("link-delay", duty=20.0, period_s=1.0))
    bench.until(1_500)
    assert [turn for turn in bench.done if turn[1] in ("take", "put")] == [
        (200, "take"), (1_000, "put"), (1_200, "take"),
    ]  # fmt: skip
    bench = Bench()
    bench.flapping.start("f1", spec("link-loss", duty=100.0, period_s=1.0))
    bench.until(1_500)
    assert not bench.done
