"""The report of an incident: one self-contained HTML file, and Markdown for a post-mortem."""

import html
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from ops.view.texts import age, counted, visible
from ops.web.pages.page import Document

WORDS: Final = {
    "symptom": "symptom",
    "trace": "trace",
    "state": "state",
    "verdict": "verdict",
    "fault": "other fault",
    "note": "note",
    "other": "elsewhere",
}
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]|~#!<>&])")
CHART_WIDTH: Final = 900
CHART_HEIGHT: Final = 120

STYLE: Final = "\n".join(
    (
        ":root { color-scheme: light dark }",
        "body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 75rem }",
        "table { border-collapse: collapse; width: 100% } bdi { unicode-bidi: isolate }",
        "th, td { border-bottom: 1px solid #8888; padding: .3rem .5rem; text-align: left }",
        "th, td { vertical-align: top; overflow-wrap: anywhere }",
        "td:first-child { font-variant-numeric: tabular-nums } svg { max-width: 100% }",
        "pre { overflow-x: auto; padding: .6rem; border: 1px solid #8888 }",
        "dt { font-weight: 600 } dd { margin: 0 0 .4rem 1rem; overflow-wrap: anywhere }",
        "ul { margin: .2rem 0 .2rem 1.2rem; padding: 0 }",
        "tr.verdict { font-weight: 600 } tr.verdict .more { font-weight: 400 }",
    )
)


def utc(ms: int) -> str:
    """Return a time as people read it."""
    try:
        at = datetime.fromtimestamp(ms // 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def commands(folder: str | None, from_ms: int, to_ms: int) -> list[str]:
    """Return the commands that replay a stretch of time; `folder`: of a recording."""
    if folder is not None:
        name = shlex.quote(folder)
        return [f"skeletonhunter diagnose {name}", f"skeletonhunter web --recording {name}"]
    bounds = " ".join(
        f"--{word} {utc(ms).replace(' ', 'T')}" for word, ms in (("from", from_ms), ("to", to_ms))
    )
    return [
        f"skeletonhunter record incident --topics all {bounds}",
        "skeletonhunter diagnose incident",
        "skeletonhunter web --recording incident",
    ]


def facts(document: Document) -> Iterator[tuple[str, str]]:
    """Yield what stands at the head of a report: a name and a text each."""
    fault = document["fault"]
    yield "Fault", fault["id"]
    yield "Component", f"{fault['component']} ({fault['component_kind'].lower()})"
    yield "Kind", f"{fault['kind']}, {fault['severity']}, layer {fault['layer'].lower()}"
    yield "What", fault["summary"]
    yield "Cluster", fault["cluster"]
    if "first_symptom_ms" in document:
        yield "First symptom", f"{utc(document['first_symptom_ms'])} UTC"
    yield "Onset by verdict", f"{utc(fault['onset_ms'])} UTC"
    began_ms = document.get("first_symptom_ms", fault["onset_ms"])
    after = age(fault["opened_ms"] - began_ms)
    yield "Verdict", f"{utc(fault['opened_ms'])} UTC, {after} after the first symptom"
    if "resolved_ms" in fault and not fault["open"]:
        lasted = age(fault["resolved_ms"] - fault["onset_ms"])
        yield "Resolved", f"{utc(fault['resolved_ms'])} UTC, after {lasted}"
    else:
        yield "Resolved", "still open"
    if "acknowledged_by" in fault:
        yield "Acknowledged by", fault["acknowledged_by"]
    if "closed" in fault:
        closed = fault["closed"]
        cause = f": {closed['cause']}" if "cause" in closed else ""
        yield "Closed", f"by {closed['by']}, {utc(closed['at_ms'])} UTC{cause}"
    yield "Tasks hit", ", ".join(fault["tasks"]) or "none known"
    if ranks := fault.get("ranks"):
        yield "Ranks stopped", "; ".join(f"{task}: {text}" for task, text in ranks.items())
    if others := document["beside"]:
        yield "Beside", ", ".join(_beside(name, one) for name, one in others.items())
    yield "First step", fault["first_step"]
    if len(fault["candidates"]) > 1:
        names = (f"{c['component']} ({c['score']:.2f})" for c in fault["candidates"])
        yield "Candidates", ", ".join(names)
    if document["missing"]:
        yield "Not known", f"{counted(document['missing'], 'earlier transition')} of it"


def _beside(fault_id: str, one: Document) -> str:
    return f"{fault_id} ({one['component']}: {one['kind']})" if one else fault_id


def lines(document: Document) -> Iterator[Document]:
    """Yield the lines of the time line, in order."""
    return (one for _, one in sorted(document["line"].items()))


def details(one: Document) -> Iterator[str]:
    """Yield what a line says besides its text."""
    verdict = one.get("verdict")
    if verdict is not None:
        yield (
            f"{verdict['state'].lower()}, confidence {verdict['confidence']:.2f}, "
            f"{counted(verdict['bad'], '5-tuple')} bad, {verdict['good']:,} good"
        )
        if not verdict["decided"]:
            names = (f"{c['component']} ({c['score']:.2f})" for c in verdict["candidates"])
            yield "undecided: " + ", ".join(names)
    if one.get("action"):
        yield one["action"]
    if one.get("disorder"):
        yield f"means {one['disorder']}"
    if one.get("detail"):
        yield one["detail"]
    yield from (f"changed: {change}" for change in one.get("changed", ()))
    yield from one.get("evidence", ())
    yield from one.get("names", ())
    if one.get("names_left"):
        yield f"and {one['names_left']:,} more"


def to_html(documents: Sequence[Document], commands: Sequence[str]) -> str:
    """Return a report as one HTML file that loads nothing and runs nothing.

    Parameters
    ----------
    documents
        Of the page Incident, one for each fault.
    commands
        That replay it.
    """
    title = _title(documents)
    body = "".join(_html_fault(document) for document in documents) or "<p>No fault.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_h(title)}</title><style>{STYLE}</style></head><body><h1>{_h(title)}</h1>"
        f"{body}<h2>Replay it</h2><pre>{_shown(commands)}</pre></body></html>\n"
    )


def _title(documents: Sequence[Document]) -> str:
    if len(documents) == 1:
        fault = documents[0]["fault"]
        return f"Incident: {fault['component']}, {fault['kind']}"
    return f"{counted(len(documents), 'incident')}"


def _html_fault(document: Document) -> str:
    head = "".join(f"<dt>{_h(k)}</dt><dd><bdi>{_h(v)}</bdi></dd>" for k, v in facts(document))
    rows = "".join(_html_line(one) for one in lines(document))
    flows = "".join(
        f"<tr><td><bdi>{_h(name)}</bdi></td>"
        f"<td><bdi>{_h(' · '.join(flow['route']) or 'not known')}</bdi></td></tr>"
        for name, flow in document["flows"].items()
    )
    left = document["lines_left"]
    more = f"<p>{counted(left, 'line')} that say less of it left out.</p>" if left else ""
    return (
        f"<section><h2><bdi>{_h(document['fault']['component'])}</bdi></h2><dl>{head}</dl>"
        f"<h3>Open anomalies on 5-tuples that cross it</h3>{_chart(document)}"
        "<h3>Time line (UTC)</h3><table><thead><tr><th>time</th><th>what</th><th>said</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>{more}"
        "<h3>5-tuples that show it</h3><table><thead><tr><th>5-tuple</th><th>crosses</th></tr>"
        f"</thead><tbody>{flows}</tbody></table></section>"
    )


def _html_line(one: Document) -> str:
    told = "".join(f"<li><bdi>{_h(text)}</bdi></li>" for text in details(one))
    said = f"<bdi>{_h(one['text'])}</bdi>" + (f"<ul class=more>{told}</ul>" if told else "")
    what = WORDS[one["what"]]
    return (
        f'<tr class="{_h(one["what"])}"><td>{utc(one["at_ms"])}</td><td>{_h(what)}</td>'
        f"<td>{said}</td></tr>"
    )


def _chart(document: Document) -> str:
    """Return the number of open anomalies over time as a picture; its numbers stand below."""
    series = document["symptoms"]
    bad: list[int] = series["bad"]
    most = max(bad, default=0)
    if not most:
        return "<p>None is known.</p>"
    step = CHART_WIDTH / len(bad)
    points = [
        f"{i * step:.1f},{CHART_HEIGHT * (1 - n / most):.1f} "
        f"{(i + 1) * step:.1f},{CHART_HEIGHT * (1 - n / most):.1f}"
        for i, n in enumerate(bad)
    ]
    last_ms = series["from_ms"] + series["step_ms"] * len(bad)
    label = f"{most:,} at most, {utc(series['from_ms'])} to {utc(last_ms)} UTC"
    return (
        f'<svg viewBox="0 0 {CHART_WIDTH} {CHART_HEIGHT}" role="img" aria-label="{_h(label)}">'
        '<polyline fill="none" stroke="currentColor" stroke-width="2" '
        f'points="{" ".join(points)}"/>'
        f"</svg><p>{_h(label)}</p>"
    )


def _shown(commands: Iterable[str]) -> str:
    return "\n".join(_h(line) for line in commands)


def _h(text: str) -> str:
    """Return a text for HTML."""
    return html.escape(visible(text))


def to_markdown(documents: Sequence[Document], commands: Sequence[str]) -> str:
    """Return a report as Markdown; arguments as of `to_html`."""
    parts = [f"# {_m(_title(documents))}", ""]
    for document in documents:
        if len(documents) > 1:
            parts += [f"## {_m(document['fault']['component'])}", ""]
        parts += [f"- **{name}**: {_m(text)}" for name, text in facts(document)]
        parts += ["", "| time (UTC) | what | said |", "|---|---|---|"]
        parts += [
            f"| {utc(one['at_ms'])} | {WORDS[one['what']]} | {_m_said(one['text'], details(one))} |"
            for one in lines(document)
        ]
        if document["lines_left"]:
            parts += [
                "",
                f"{counted(document['lines_left'], 'line')} that say less of it left out.",
            ]
        parts += ["", "| 5-tuple | crosses |", "|---|---|"]
        parts += [
            f"| {_m(name)} | {_m(' · '.join(flow['route']) or 'not known')} |"
            for name, flow in document["flows"].items()
        ]
        parts += ["", "**What it was, and what was done:**", ""]
    parts += ["## Replay it", "", *(f"    {visible(line)}" for line in commands), ""]
    return "\n".join(parts)


def _m_said(text: str, more: Iterable[str]) -> str:
    return "<br>".join(_m(part) for part in (text, *more))


def _m(text: str) -> str:
    """Return a text in which Markdown finds no markup."""
    return _MARKDOWN.sub(r"\\\1", visible(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")
