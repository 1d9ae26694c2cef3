"""The impairments of one direction of a link, and their effect on each packet."""

import random
from dataclasses import dataclass, field
from typing import Final

# Enough to break any field of a probe, few enough to look like a bad cable.
CORRUPT_BYTES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One fault's effect on one direction; shares are between 0 and 1."""

    cut: bool = False
    loss: float = 0.0
    corrupt: float = 0.0
    delay_ns: int = 0
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one packet: lost, or passed on after `delay_ns`, perhaps corrupted."""

    lost: bool = False
    corrupt: bool = False
    delay_ns: int = 0


LOST: Final = Fate(lost=True)


@dataclass(slots=True)
class LinkDirection:
    """One direction of a link; `impaired` is all that the fast path looks at.

    Several effects add up: shares as independent events, delays as sums.
    """

    link_id: str
    sender: str
    receiver: str
    impaired: bool = False
    lost: int = 0
    corrupted: int = 0
    delayed: int = 0
    _effects: dict[str, Effect] = field(default_factory=dict)
    _sum: Effect = field(default_factory=Effect)

    def set_effect(self, fault_id: str, effect: Effect) -> None:
        """Add (or replace) the effect of a fault."""
        self._effects[fault_id] = effect
        self._add_up()

    def remove(self, fault_id: str) -> None:
        """Take the effect of a fault away, if there is one."""
        self._effects.pop(fault_id, None)
        self._add_up()

    def _add_up(self) -> None:
        passes, intact = 1.0, 1.0
        for effect in self._effects.values():
            passes *= 1.0 - effect.loss
            intact *= 1.0 - effect.corrupt
        self._sum = Effect(
            cut=any(e.cut for e in self._effects.values()),
            loss=1.0 - passes,
            corrupt=1.0 - intact,
            delay_ns=sum(e.delay_ns for e in self._effects.values()),
            jitter_ns=sum(e.jitter_ns for e in self._effects.values()),
        )
        self.impaired = self._sum != Effect()

    @property
    def effect(self) -> Effect:
        """The sum of all effects."""
        return self._sum

    def fate(self, rng: random.Random) -> Fate:
        """Decide what happens to the next packet, and count it."""
        effect = self._sum
        if effect.cut or (effect.loss and rng.random() < effect.loss):
            self.lost += 1
            return LOST
        corrupt = effect.corrupt > 0 and rng.random() < effect.corrupt
        delay_ns = effect.delay_ns
        if effect.jitter_ns:
            delay_ns += rng.randrange(effect.jitter_ns + 1)
        self.corrupted += corrupt
        self.delayed += delay_ns > 0
        return Fate(corrupt=corrupt, delay_ns=delay_ns)


def corrupt_payload(datagram: bytearray | memoryview, start: int, rng: random.Random) -> None:
    """Change up to three bytes of `datagram` from index `start` on, in place."""
    if len(datagram) <= start:
        return
    size = len(datagram) - start
    # Distinct places, and no mask of 0: the bytes differ for certain.
    for index in rng.sample(range(size), min(CORRUPT_BYTES, size)):
        datagram[start + index] ^= rng.randrange(1, 256)
