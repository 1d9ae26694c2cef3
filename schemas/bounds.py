"""Bounds of the fields that move time, memory or a life cycle."""

from typing import Final

from schemas.units import SECOND_NS

# How far an event time may lie ahead of the arrival of its record at the broker: clocks of hosts
# under NTP differ by milliseconds, and a broken one must not move others' time.
MAX_AHEAD_NS: Final = 60 * SECOND_NS
