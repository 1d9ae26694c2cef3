"""Matrix: who loses or is slow towards whom, from pods down to single endpoints."""

from base64 import b64encode
from enum import StrEnum
from typing import Final, TypeVar

import numpy as np

from ops.view import matrix as m
from ops.view.cluster import ClusterView
from ops.view.places import Places
from ops.view.texts import counted
from ops.web.pages.page import Document, Page, Params, UnknownItemError, without_none

E = TypeVar("E", bound=StrEnum)

# A sum over all 5-tuples; a window says something new in thirty seconds.
LEAST_GAP_S: Final = 2.0
GROUP_SEPARATOR: Final = "/"
# A row is sent as its cells' columns and codes, or, where that is shorter, as all codes.
BYTES_OF_A_CELL: Final = 3

LOSS_TEXTS: Final = (
    "nothing lost", "under 0.1 % lost", "0.1 to 1 % lost", "1 to 10 % lost",
    "10 to 50 % lost", "50 % or more lost", "all lost",
)  # fmt: skip
RATIO_TEXTS: Final = (
    "as usual", "1.1 times the usual", "1.25 times the usual", "1.5 times the usual",
    "2 times the usual", "4 times the usual", "10 times the usual, or more",
)  # fmt: skip
STATE_TEXTS: Final = ("not probed", "not probed lately", "not known")


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return sides, cells, legend and the worst cells.

    Parameters
    ----------
    params
        `level` (pod, leaf, endpoint), `rows` and `cols` (`<level>/<name>`, what to confine them
        to), `of` (loss, p50, p99), `fold` (mean, worst).
    """
    of = _chosen(m.Quantity, params, "of") or m.Quantity.LOSS
    fold = _chosen(m.Fold, params, "fold") or m.Fold.MEAN
    try:
        found = m.matrix(
            view,
            now_ms,
            level=_chosen(m.Level, params, "level"),
            rows=_group(params, "rows"),
            cols=_group(params, "cols"),
            of=of,
            fold=fold,
        )
    except m.UnknownGroupError as error:
        raise UnknownItemError(
            str(error), "it may be gone: begin again at the whole cluster"
        ) from None
    texts = LOSS_TEXTS if of is m.Quantity.LOSS else RATIO_TEXTS
    cells = found.cells
    counts = np.bincount(cells.code, minlength=m.WELL + len(texts))
    counts[m.NOT_PROBED] = len(found.rows.names) * len(found.cols.names) - len(cells.row)
    return without_none(
        {
            "level": found.level.value,
            "sizes": {level.value: size for level, size in found.sizes.items()},
            "of": of.value,
            "fold": fold.value,
            "note": _note(found),
            "rows": _side(found.rows, view.places.of(view), params.get("rows")),
            "cols": _side(found.cols, view.places.of(view), params.get("cols")),
            "cells": packed(cells, len(found.cols.names)),
            "legend": {
                str(code): {"text": text, "count": int(counts[code])}
                for code, text in enumerate((*STATE_TEXTS, *texts))
            },
            "worst": {str(place): _cell(found, cell, of) for place, cell in enumerate(found.worst)},
            "lines": {
                str(place): {
                    "source": line.source,
                    "name": line.name,
                    "bad": line.bad,
                    "probed": line.probed,
                }
                for place, line in enumerate(found.lines)
            },
            "flows": len(view.flow_windows),
            "dropped": view.flow_windows.dropped,
        }
    )


def packed(cells: m.Cells, width: int) -> dict[str, str]:
    """Return the cells of each row that has any, as text.

    Parameters
    ----------
    cells
        By row, then column.
    width
        Number of columns.

    Returns
    -------
    dict
        By row: `s` and the base64 of three bytes a cell, its column (little endian) and its code;
        or `d` and the base64 of a byte for each column. Whichever is shorter.
    """
    rows, starts = np.unique(cells.row, return_index=True)
    code = cells.code.astype(np.uint8)
    sparse = np.empty((len(code), BYTES_OF_A_CELL), np.uint8)
    sparse[:, 0], sparse[:, 1], sparse[:, 2] = cells.col & 255, cells.col >> 8, code
    found = {}
    ends = np.append(starts, len(code))[1:]
    for row, start, end in zip(rows, starts, ends, strict=True):
        if (end - start) * BYTES_OF_A_CELL < width:
            found[str(row)] = "s" + b64encode(sparse[start:end].tobytes()).decode()
        else:
            whole = np.zeros(width, np.uint8)
            whole[cells.col[start:end]] = code[start:end]
            found[str(row)] = "d" + b64encode(whole.tobytes()).decode()
    return found


def _side(side: m.Side, places: Places, within: str | None) -> Document:
    return without_none(
        {
            "names": list(side.names),
            "parts": [[start, name] for start, name in side.parts],
            "left_out": side.left_out,
            "within": within,
            "above": _above(places, within),
        }
    )


def _above(places: Places, within: str | None) -> str | None:
    """Return the group of a pod to which a leaf belongs, to go back to it."""
    level, _, name = (within or "").partition(GROUP_SEPARATOR)
    if level != m.Level.LEAF:
        return None
    leaf = places.leaves.index(name)
    pod = places.pods[places.pod_of[np.argmax(places.leaf_of == leaf)]]
    return f"{m.Level.POD}{GROUP_SEPARATOR}{pod}"


def _cell(found: m.Matrix, place: int, of: m.Quantity) -> Document:
    cells = found.cells
    value = float(cells.value[place])
    told = f"{value:.2%} lost" if of is m.Quantity.LOSS else f"{value:.2f} times the usual"
    return {
        "row": int(cells.row[place]),
        "col": int(cells.col[place]),
        "src": found.rows.names[cells.row[place]],
        "dst": found.cols.names[cells.col[place]],
        "value": told,
        "flows": int(cells.flows[place]),
        "sent": int(cells.sent[place]),
        "lost": int(cells.lost[place]),
    }


def _note(found: m.Matrix) -> str | None:
    if found.coarser:
        return (
            f"At most {m.MAX_SIDE:,} rows and columns are shown; choose a cell to see "
            "what is in it."
        )
    left_out = found.rows.left_out + found.cols.left_out
    if left_out:
        return f"{counted(left_out, 'row')} and columns are left out: more than {m.MAX_SIDE:,}."
    return None


def _group(params: Params, key: str) -> m.Group | None:
    text = params.get(key)
    if text is None:
        return None
    level, separator, name = text.partition(GROUP_SEPARATOR)
    if not separator or level not in list(m.Level):
        raise UnknownItemError(f"{key}={text!r} names no group", "give pod/NAME or leaf/NAME")
    return m.Group(m.Level(level), name)


def _chosen(kind: type[E], params: Params, key: str) -> E | None:
    text = params.get(key)
    if text is None:
        return None
    if text not in list(kind):
        raise UnknownItemError(f"{key}={text!r} is not known", f"give one of {', '.join(kind)}")
    return kind(text)


MATRIX: Final = Page(name="matrix", document=document, least_gap_s=LEAST_GAP_S)
