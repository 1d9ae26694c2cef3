"""Compiles the kernels before they are needed: `python -m streams.warm`, or at a worker's start.

Compiling takes half a minute, once after an installation. Later starts read the machine code
from disk, in about a second.
"""

import time
from functools import partial
from typing import Final

from schemas import topics
from schemas.codec import Codec, DecodeError
from schemas.enums import ClockSource, ProbeStatus, Transport
from schemas.records import ProbeResult, ProbeRound
from schemas.units import SECOND_NS, US_PER_S
from streams.config import DetectionConfig
from streams.core.feed import Feed, LogMessage, window_bytes
from streams.core.machine import PartitionMachine
from streams.core.partition import Identity
from streams.core.published import KernelReader, PublishedReader
from streams.core.window_bytes import WindowBytes
from streams.core.window_records import WindowBatch
from streams.detectors.base import MIN_ANSWERS

# The look-back and the lateness, in windows of a second; then other rounds, until the 5-tuple of
# the first ones is forgotten.
WARMING_ROUNDS: Final = 20
LATER_ROUNDS: Final = 4
LATER_STEP_S: Final = 50


def warm(codec: Codec) -> None:
    """Compile the kernels, or read them from disk: process rounds whose outputs are dropped."""
    machine = PartitionMachine(DetectionConfig(window_ns=SECOND_NS), Identity("none", 0))
    encoder = window_bytes(codec, machine)
    reader = KernelReader(codec, "none", _fail, lambda key: key)
    machine.window_sink = partial(_encoded, encoder, reader)
    # Enough of them to close windows, and to judge one by those before.
    rounds = map(_round, range(WARMING_ROUNDS + LATER_ROUNDS))
    messages = [LogMessage(codec.encode(topics.PROBE_ROUND, r), n) for n, r in enumerate(rounds)]
    for _ in Feed(machine, codec).process(messages):
        pass


def _encoded(encoder: WindowBytes, reader: PublishedReader, windows: WindowBatch) -> None:
    reader.read(encoder.encode(windows)[1])


def _fail(error: DecodeError) -> None:
    raise error


def _round(number: int) -> ProbeRound:
    """Return a round of as many answers as a window has to have."""
    later = max(0, number - WARMING_ROUNDS + 1)
    second, agent = number + later * LATER_STEP_S, "b" if later else "a"
    result = ProbeResult(
        src="a", dst="b", flow=0, sent_offset_ns=0, transport=Transport.UDP,
        status=ProbeStatus.OK, rtt_ns=1, clock=ClockSource.SOFTWARE,
    )  # fmt: skip
    return ProbeRound(
        cluster="none", agent_id=agent, host_id="h", incarnation=0, round_seq=number,
        started_at=second * US_PER_S, interval_ns=SECOND_NS, results=(result,) * MIN_ANSWERS,
    )  # fmt: skip


def main() -> None:
    """Compile the kernels, and print how long it took."""
    began = time.monotonic()
    warm(Codec())
    print(f"kernels: ready after {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
