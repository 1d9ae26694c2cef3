"""A round in two parts, header and results, each encoded by the project's codec. Pure."""

from typing import Any

from schemas.codec import Codec
from schemas.topics import PROBE_ROUND


def round_head(codec: Codec, header: dict[str, Any], number: int, started_us: int) -> bytes:
    """Return a framed round up to its results."""
    datum = {**header, "round_seq": number, "started_at": started_us, "results": []}
    # What is cut off is the mark that the array ends.
    return codec.encode_datum(PROBE_ROUND, datum)[:-1]


def round_body(codec: Codec, header: dict[str, Any], results: list[dict[str, Any]]) -> bytes:
    """Return the results as they stand behind the header of any round of the agent."""
    datum = {**header, "round_seq": 0, "started_at": 0, "results": results}
    whole = codec.encode_datum(PROBE_ROUND, datum)
    head = round_head(codec, header, 0, 0)
    if not whole.startswith(head):
        raise RuntimeError("the results are no longer the last field of a round")
    return whole[len(head) :]
