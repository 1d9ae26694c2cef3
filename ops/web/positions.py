"""Positions in the topics as one line of text: the id of an event of the page's stream."""

from collections.abc import Mapping

from ops.view.cluster import Place


def to_text(positions: Mapping[Place, int]) -> str:
    """Return the positions as text, `topic:partition=offset,…;topic:…`.

    >>> to_text({("a", 1): 5, ("a", 0): 3, ("b", 0): 7})
    'a:0=3,1=5;b:0=7'
    """
    by_topic: dict[str, list[str]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        by_topic.setdefault(topic, []).append(f"{partition}={offset}")
    return ";".join(f"{topic}:{','.join(places)}" for topic, places in by_topic.items())
