"""A report as one self-contained HTML page, and as a picture."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from arena.reporting.figures import detection_figure, kinds_figure, svg
from arena.reporting.results import Result, by_diagnoser
from arena.reporting.sheet import write_png
from arena.reporting.tables import Failure, failures, headings, rows
from arena.scoring import Case

# Worst cases shown of the first diagnoser, and of each other one.
MOST: Final = 60
MOST_OF_OTHERS: Final = 20
STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 78rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
p.note, .interval { color: #555; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .4rem .6rem; border-bottom: 1px solid #ccc; text-align: left;
  vertical-align: top; }
table.scores th + th, table.scores td { text-align: right; white-space: nowrap; }
table.scores thead th { white-space: normal; vertical-align: bottom; }
.interval { display: block; font-size: .75rem; }
.best { color: #00598a; font-weight: bold; }
img { max-width: 100%; height: auto; }
code { font-size: .85rem; overflow-wrap: anywhere; }
summary { cursor: pointer; margin-top: .8rem; }
"""


def write_report(
    results: Iterable[Result], html: Path, png: Path | None = None, *, title: str = "Arena"
) -> None:
    """Write the report of some results.

    Parameters
    ----------
    results
        The diagnoser that comes first is shown in detail.
    html, png
        Where the page goes, and the picture of it; None: no picture.

    Raises
    ------
    ValueError
        If there are no results.
    """
    cases = by_diagnoser(results)
    if not cases:
        raise ValueError("no results to report")
    html.write_text(page(cases, title), encoding="utf-8")
    if png is not None:
        write_png(png, cases, title, note(cases))


def note(cases: Mapping[str, Sequence[Case]]) -> str:
    """Return what was run, in one line."""
    some = next(iter(cases.values()))
    hours = sum(case.duration_ns for case in some) / 3.6e12
    faults = sum(len(case.faults) for case in some)
    probes = sum(case.probes for case in some)
    return (
        f"{len(some)} scenarios, {faults} faults, {hours:.1f} hours of simulated time, "
        f"{probes:,} probes; the same records for all"
    )


def page(cases: Mapping[str, Sequence[Case]], title: str) -> str:
    """Return the page."""
    first, mine = next(iter(cases.items()))
    others = [(name, some) for name, some in cases.items() if name != first]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{escape(note(cases))}</p>',
        "<h2>Scores</h2>",
        _scores(cases),
        "<p class='note'>Below each ratio its 95 % bootstrap interval over scenarios. Place, kind "
        "and delay are of the faults that were found; a dash: not defined. The best of a "
        "column is bold. Baselines name symptoms, not kinds: nobody published more.</p>",
        "<h2>Detection</h2>",
        _image(svg(detection_figure(cases)), "Delay of verdicts; precision over recall"),
        "<p class='note'>Delays count every fault: a curve ends at the recall.</p>",
        "<h2>Kinds</h2>",
        _image(svg(kinds_figure(mine, first)), f"Kinds that {first} said, by the true kind"),
        "<h2>Worst cases</h2>",
        f"<h3>{escape(first)}</h3>",
        _worst(failures(mine), MOST),
        *(
            f"<details><summary>{escape(name)}: {len(found)}</summary>"
            f"{_worst(found, MOST_OF_OTHERS)}</details>"
            for name, some in others
            for found in [failures(some)]
        ),
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _scores(cases: Mapping[str, Sequence[Case]]) -> str:
    head = "".join(f"<th scope='col'>{escape(h)}</th>" for h in ["diagnoser", *headings()])
    body = []
    for name, cells in rows(cases).items():
        made = "".join(
            f"<td>{'<span class=best>' if cell.best else '<span>'}{escape(cell.text)}</span>"
            + (f"<span class='interval'>{escape(cell.interval)}</span>" if cell.interval else "")
            + "</td>"
            for cell in cells
        )
        body.append(f"<tr><th scope='row'>{escape(name)}</th>{made}</tr>")
    return (
        f"<div class='wide'><table class='scores'><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _worst(found: Sequence[Failure], most: int) -> str:
    if not found:
        return "<p>None: everything found, nothing false, every place right.</p>"
    made = "".join(
        f"<tr><td>{escape(t.what)}</td><td><code>{escape(t.scenario)}</code></td>"
        f"<td>{escape(t.detail)}</td></tr>"
        for t in found[:most]
    )
    more = f"<p class='note'>and {len(found) - most} more</p>" if len(found) > most else ""
    return (
        "<div class='wide'><table><thead><tr><th>what</th><th>scenario</th><th>detail</th></tr>"
        f"</thead><tbody>{made}</tbody></table></div>{more}"
    )


def _image(text: str, alt: str) -> str:
    data = base64.b64encode(text.encode()).decode()
    return f"<img alt='{escape(alt, quote=True)}' src='data:image/svg+xml;base64,{data}'>"
