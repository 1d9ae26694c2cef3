"""Ranks as text."""

from collections.abc import Sequence


def rank_text(ranks: Sequence[int]) -> str:
    """Return sorted ranks as text, stretches of them short.

    >>> rank_text([0, 1, 2, 5])
    'ranks 0–2, 5'
    >>> rank_text([3])
    'rank 3'
    """
    parts: list[str] = []
    begin = 0
    for place in range(1, len(ranks) + 1):
        if place == len(ranks) or ranks[place] != ranks[place - 1] + 1:
            first, last = ranks[begin], ranks[place - 1]
            parts.append(str(first) if first == last else f"{first}–{last}")
            begin = place
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"
