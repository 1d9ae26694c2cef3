"""What the dumps of a job say, as one HTML file: findings, and how far each rank came in groups.

Everything from a dump is escaped; the page loads and runs nothing.
"""

from collections.abc import Iterator
from html import escape
from typing import Final

from localizer.collectives.diagnosis import Diagnosis, Finding
from localizer.collectives.groups import Group
from ops.jobs.hang_report import as_text

# A browser shows a table of this size at once; ranks that findings name come first.
MAX_ROWS: Final = 512
MAX_COLUMNS: Final = 64
STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1c1c1c;background:#fff}
pre{white-space:pre-wrap;background:#f4f4f4;padding:1rem;border-radius:4px}
table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.15rem .5rem;text-align:right}
.named{background:#f7c6c0}.behind{background:#fde9b8}.none{color:#999}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#262626}
td,th{border-color:#444}.named{background:#7a2a22}.behind{background:#6b5413}}
"""


def as_page(found: Diagnosis, title: str) -> str:
    """Return an HTML document.

    Parameters
    ----------
    found
        What to show.
    title
        Where the dumps come from.
    """
    text = "\n".join(as_text(found))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><pre>{escape(text)}</pre>"
        "<h2>How far each rank came</h2><p>Last sequence launched / finished, by group. Coloured: "
        "ranks that a finding names, and ranks that are behind their group.</p>"
        f"{''.join(_table(found))}</body></html>\n"
    )


def _table(found: Diagnosis) -> Iterator[str]:
    named = {rank for finding in found.findings for rank in finding.ranks}
    groups = sorted(found.groups, key=lambda g: (not _is_concerned(g, found.findings), g.name))
    shown = groups[:MAX_COLUMNS]
    ranks = sorted(found.ranks, key=lambda rank: (rank not in named, rank))[:MAX_ROWS]
    yield "<table><tr><th>rank</th>"
    yield from (f"<th>{escape(group.label)}</th>" for group in shown)
    yield "</tr>"
    for rank in ranks:
        mark = ' class="named"' if rank in named else ""
        yield f"<tr><th{mark}>{rank}</th>"
        yield from (_cell(group, rank, missing=rank in found.without_dump) for group in shown)
        yield "</tr>"
    yield "</table>"
    rows, columns = len(found.ranks) - len(ranks), len(groups) - len(shown)
    if rows or columns:
        yield f"<p>Not shown: {rows} ranks, {columns} groups.</p>"


def _is_concerned(group: Group, findings: tuple[Finding, ...]) -> bool:
    return any(finding.group == group.label for finding in findings)


def _cell(group: Group, rank: int, *, missing: bool) -> str:
    if rank not in group.operations:
        member = rank in group.members or rank in group.possible
        return f'<td class="none">{"no dump" if missing and member else ""}</td>'
    launched, done = group.launched[rank], group.done[rank]
    furthest = max((head for head in group.launched.values() if head is not None), default=None)
    behind = launched is None or (furthest is not None and launched < furthest)
    mark = ' class="behind"' if behind else ""
    said = " / ".join("–" if value is None else str(value) for value in (launched, done))
    return f"<td{mark}>{said}</td>"
