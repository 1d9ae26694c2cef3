"""The hash that switches, bonds and the drawing of worlds share: splitmix64 over words."""

from typing import Final

_MASK: Final = (1 << 64) - 1


def mixed(*words: int) -> int:
    """Return 64 well-mixed bits of some words (splitmix64's finalizer over a running sum).

    >>> mixed(1, 2) == mixed(1, 2), mixed(1, 2) == mixed(2, 1)
    (True, False)
    """
    state = 0x9E3779B97F4A7C15
    for word in words:
        state = (state + word * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & _MASK
        state ^= state >> 30
        state = (state * 0xBF58476D1CE4E5B9) & _MASK
        state ^= state >> 27
        state = (state * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def text_word(text: str) -> int:
    """Return a 64-bit number of a text (FNV-1a), the same in every process."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & _MASK
    return state
