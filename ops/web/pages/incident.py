"""Incident: one fault from its first symptom to its end, and what was known at each moment."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ops.log.tail import duration
from ops.view.cluster import ClusterView
from ops.view.crossing import FlowPath, paths
from ops.view.faults import FaultHistory
from ops.view.symptoms import AnomalySpan, StateChange
from ops.view.texts import counted, some
from ops.web.pages.page import Document, Page, Params, UnknownItemError, without_none
from ops.web.pages.rows import answers, beside, event_row, fault_row, ranks_by_job
from schemas.ids import FlowId
from schemas.records import FaultEvent, PathTrace
from schemas.units import US_PER_MS

# Symptoms begin before the onset that the verdict names: a window of 30 s, and a round.
BEFORE_MS: Final = 60_000
AFTER_MS: Final = 30_000
STEP_MS: Final = 5_000
# Symptoms of one kind that begin within a second are one line.
GROUP_MS: Final = 1_000
# A 5-tuple is traced again every ten seconds while it is bad: the later ones say little more.
TRACES_MS: Final = 60_000
# Lines of the time line; what says least of the fault is left out, and counted. An incident of an
# hour then stays below 5 MB.
MAX_LINES: Final = 2_000
MAX_FLOWS: Final = 200
NAMED: Final = 8
CHART_POINTS: Final = 240
# What no round trip takes; neither does infinity.
MAX_NS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Span:
    """The stretch of time that is looked at, in milliseconds since the epoch."""

    from_ms: int
    to_ms: int

    def holds(self, at_ms: int) -> bool:
        """Return whether a time lies in it."""
        return self.from_ms <= at_ms <= self.to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A fault and what belongs to it.

    Attributes
    ----------
    blamed
        Components that a transition named.
    crossed
        What the 5-tuples of all anomalies in the time cross.
    symptoms, others
        Anomalies on 5-tuples that cross what is blamed, and the rest.
    """

    history: FaultHistory
    span: Span
    blamed: frozenset[str]
    crossed: Mapping[FlowId, FlowPath]
    symptoms: list[AnomalySpan]
    others: list[AnomalySpan]


def document(view: ClusterView, params: Params, now_ms: int) -> Document:
    """Return a fault with its time line.

    Parameters
    ----------
    params
        `fault`: its id. `from`, `to`: milliseconds since the epoch, to look at less or more.

    Raises
    ------
    UnknownItemError
        If there is no such fault, or the times are none.
    """
    history = _fault(view, params)
    case = _case(view, history, _span(view, history, params, now_ms))
    span, own = case.span, case.symptoms
    lines = sorted(_lines(view, case), key=_worth)
    shown = sorted(lines[:MAX_LINES], key=_in_time)
    return {
        "fault": {
            **fault_row(view, history, now_ms),
            **answers(view).get(history.last.fault_id, {}),
        },
        "beside": beside(view, history.last),
        "span": {"from_ms": span.from_ms, "to_ms": span.to_ms},
        "until_now": history.open,
        "missing": history.missing,
        "line": {f"{i:05d}": one for i, one in enumerate(shown)},
        "lines_left": len(lines) - len(shown),
        "flows": _flows(own, case.crossed),
        "flows_left": max(0, len({_flow(s) for s in own}) - MAX_FLOWS),
        "symptoms": _series(own, span),
        "others": len(case.others),
        **without_none({"first_symptom_ms": _first_ms(own)}),
    }


def _in_time(line: Document) -> tuple[int, int, str]:
    return line["at_ms"], line["rank"], line["text"]


def _worth(line: Document) -> tuple[int, int, int, str]:
    """Return what orders lines by how much they say of the fault, to leave out the least."""
    said = 0 if line["what"] in ("verdict", "note") else 1 + line["rank"]
    return (said, *_in_time(line))


def _fault(view: ClusterView, params: Params) -> FaultHistory:
    fault_id = params.get("fault", "")
    if not fault_id:
        raise UnknownItemError("no fault is named", "choose one on the page Now")
    history = view.faults.get(fault_id)
    if history is None:
        raise UnknownItemError(
            f"no fault {fault_id!r} is known here",
            "is the id whole? Live, only faults of --faults-from are known: `skeletonhunter tail "
            "fault.event.v1 --from beginning --to end` lists all",
        )
    return history


def _span(view: ClusterView, history: FaultHistory, params: Params, now_ms: int) -> Span:
    last = history.last
    # An end that moves with each second would change the whole document with it.
    now_ms = (now_ms // STEP_MS + 1) * STEP_MS
    # People write about a fault after it is over.
    noted = (n.noted_at for n in view.notes.values() if n.fault_id == last.fault_id)
    end_ms = max([last.event_at, *noted]) // US_PER_MS + AFTER_MS
    end_ms = now_ms if history.open else end_ms
    start_ms = min(e.onset_at for e in history.transitions) // US_PER_MS - BEFORE_MS
    try:
        from_ms = int(params.get("from", start_ms))
        to_ms = int(params.get("to", min(end_ms, now_ms)))
    except ValueError:
        raise UnknownItemError(
            f"from={params.get('from')!r}, to={params.get('to')!r}: no times",
            "give milliseconds since the epoch",
        ) from None
    if from_ms > to_ms:
        raise UnknownItemError(
            f"from={from_ms} is after to={to_ms}", "give the earlier time as from"
        )
    return Span(from_ms, to_ms)


def _case(view: ClusterView, history: FaultHistory, span: Span) -> _Case:
    blamed = _blamed(history)
    spans = [s for s in view.anomalies.values() if _overlaps(s, span)]
    crossed = paths(view, {_flow(s): s.onset_at for s in spans})
    # A 5-tuple is a symptom of the fault if it crosses a component that the verdict names.
    own: list[AnomalySpan] = []
    others: list[AnomalySpan] = []
    for one in spans:
        mine = not blamed.isdisjoint(crossed[_flow(one)].components)
        (own if mine else others).append(one)
    return _Case(
        history=history, span=span, blamed=blamed, crossed=crossed, symptoms=own, others=others
    )


def _blamed(history: FaultHistory) -> frozenset[str]:
    """Return all components that a transition named, as the cause or as a candidate."""
    found = {e.component_id for e in history.transitions}
    for event in history.transitions:
        if not event.decided:
            found |= {c.component_id for c in event.candidates}
    return frozenset(found)


def _overlaps(one: AnomalySpan, span: Span) -> bool:
    end_at = one.cleared_at if one.cleared_at is not None else one.last_at
    return one.onset_at // US_PER_MS <= span.to_ms and end_at // US_PER_MS >= span.from_ms


def _flow(one: AnomalySpan) -> FlowId:
    return one.worst.src, one.worst.dst, one.worst.flow


def _first_ms(own: Iterable[AnomalySpan]) -> int | None:
    """Return when the first symptom of it began; None: none is known."""
    onsets = [s.onset_at // US_PER_MS for s in own]
    return min(onsets) if onsets else None


def flow_name(key: FlowId) -> str:
    """Return a 5-tuple as people read it: source, destination, number of the flow.

    >>> flow_name(("a", "b", 2))
    'a → b #2'
    """
    return f"{key[0]} → {key[1]} #{key[2]}"


def _lines(view: ClusterView, case: _Case) -> list[Document]:
    flows = {_flow(s) for s in case.symptoms}
    return [
        *_verdicts(case.history.transitions, case.span),
        *_symptoms(case.symptoms, case.span, "symptom"),
        *_symptoms(case.others, case.span, "other"),
        *_traces(view, flows, case.span, case.crossed),
        *_changes(view, case.blamed, case.span),
        *_other_faults(view, case.history, case.span),
        *_notes(view, case.history, case.span),
    ]


def _line(kind: str, rank: int, at_ms: int, text: str, **more: Any) -> Document:
    return without_none({"what": kind, "rank": rank, "at_ms": at_ms, "text": text, **more})


def _verdicts(transitions: Iterable[FaultEvent], span: Span) -> Iterator[Document]:
    before: FaultEvent | None = None
    for event in transitions:
        at_ms = event.event_at // US_PER_MS
        if span.holds(at_ms):
            yield _line(
                "verdict",
                3,
                at_ms,
                event.summary,
                verdict=event_row(event),
                evidence=list(event.evidence),
                changed=list(_changed(before, event)),
            )
        before = event


def _changed(before: FaultEvent | None, event: FaultEvent) -> Iterator[str]:
    """Yield what a transition changed, for people."""
    if before is None:
        return
    for name, label in (
        ("component_id", "component"),
        ("fault_kind", "kind"),
        ("severity", "severity"),
        ("bad_paths", "bad 5-tuples"),
        ("good_paths", "good 5-tuples"),
    ):
        was, now = getattr(before, name), getattr(event, name)
        if was != now:
            yield f"{label}: {was} → {now}"
    if before.decided != event.decided:
        yield "now decided" if event.decided else "now undecided"
    if round(before.confidence, 2) != round(event.confidence, 2):
        yield f"confidence: {before.confidence:.2f} → {event.confidence:.2f}"
    if before.tasks != event.tasks:
        yield f"tasks: {some(event.tasks) or 'none'}"
    if before.ranks != event.ranks:
        told = "; ".join(f"{task}: {text}" for task, text in ranks_by_job(event.ranks).items())
        yield f"stops ranks: {told or 'none'}"
    if before.related_fault_ids != event.related_fault_ids:
        yield f"beside: {some(event.related_fault_ids) or 'no other fault'}"


def _symptoms(spans: Iterable[AnomalySpan], span: Span, kind: str) -> Iterator[Document]:
    """Yield onsets and ends, those of one kind of anomaly and second as one line."""
    groups: defaultdict[tuple[int, str, str], list[AnomalySpan]] = defaultdict(list)
    for one in spans:
        name = one.worst.kind.value.lower().replace("_", " ")
        begin_ms = one.onset_at // US_PER_MS
        groups[begin_ms // GROUP_MS, name, "begins"].append(one)
        if one.cleared_at is not None:
            groups[one.cleared_at // US_PER_MS // GROUP_MS, name, "ends"].append(one)
    for (_, name, verb), members in groups.items():
        at_ms = min(
            (m.onset_at if verb == "begins" else m.cleared_at or 0) // US_PER_MS for m in members
        )
        if span.holds(at_ms):
            names = sorted(flow_name(_flow(m)) for m in members)
            text = f"{name} {verb} on {counted(len(members), '5-tuple')}"
            yield _line(
                kind, 0 if kind == "symptom" else 5, at_ms, text,
                names=names[:NAMED], names_left=max(0, len(names) - NAMED) or None,
                detail=_worst(members) if verb == "begins" else None,
            )  # fmt: skip


def _worst(members: Iterable[AnomalySpan]) -> str | None:
    """Return the worst of some anomalies in words; None: nothing was measured."""
    worst = max(members, key=lambda m: m.worst.value or 0.0).worst
    parts = []
    if worst.value is not None:
        unit = worst.unit or ""
        limit = "" if worst.threshold is None else f", threshold {_quantity(worst.threshold, unit)}"
        usual = "" if worst.reference is None else f", usually {_quantity(worst.reference, unit)}"
        parts.append(f"at worst {_quantity(worst.value, unit)}{limit}{usual}")
    if worst.sent:
        parts.append(f"{worst.lost} of {worst.sent} lost")
    return "; ".join(parts) or None


def _quantity(value: float, unit: str) -> str:
    """Return a measured value for people.

    >>> _quantity(6_132_760.0, "ns"), _quantity(3.0, "probes")
    ('6.13ms', '3 probes')
    """
    if unit == "ns" and abs(value) < MAX_NS:
        return duration(round(value))
    return f"{value:.6g} {unit}".rstrip()


def _traces(
    view: ClusterView, flows: set[FlowId], span: Span, crossed: Mapping[FlowId, FlowPath]
) -> Iterator[Document]:
    """Yield the traces of the symptoms' 5-tuples, those of one minute as one line."""
    groups: defaultdict[tuple[int, str], list[PathTrace]] = defaultdict(list)
    for trace in view.traces.values():
        at_ms = trace.traced_at // US_PER_MS
        if (trace.src, trace.dst, trace.flow) in flows and span.holds(at_ms):
            groups[at_ms // TRACES_MS, trace.cause.value.lower()].append(trace)
    for (_, cause), members in groups.items():
        at_ms = min(m.traced_at // US_PER_MS for m in members)
        cut = [m for m in members if not m.complete]
        text = f"{counted(len(members), 'trace')} because of {cause}"
        reasons = sorted({m.incomplete_reason or "no answer" for m in cut})
        if cut:
            text += f"; {len(cut)} did not reach the target ({some(reasons)})"
        names = sorted(f"{flow_name((m.src, m.dst, m.flow))}: {_hops(m, crossed)}" for m in members)
        yield _line(
            "trace", 1, at_ms, text,
            names=names[:NAMED], names_left=max(0, len(names) - NAMED) or None,
        )  # fmt: skip


def _hops(trace: PathTrace, crossed: Mapping[FlowId, FlowPath]) -> str:
    answered = sum(hop.address is not None for hop in trace.hops)
    route = crossed[trace.src, trace.dst, trace.flow].route
    way = f" through {' · '.join(route)}" if route and trace.complete else ""
    return f"{answered} of {counted(len(trace.hops), 'hop')} answered{way}"


def _changes(view: ClusterView, blamed: frozenset[str], span: Span) -> Iterator[Document]:
    """Yield changes of states: those of a component that is blamed, or near it, first of all."""
    near = set(blamed)
    for name in blamed:
        component = view.topology.get(name)
        if component is not None:
            near |= {end for end in (component.a, component.b, component.parent) if end}
    for change in view.changes.values():
        at_ms = change.at // US_PER_MS
        if span.holds(at_ms):
            own = change.component_id in near
            yield _line(
                "state", 2 if own else 6, at_ms, _change_text(change),
                own=own, disorder=change.disorder, detail=f"read by {change.source}",
            )  # fmt: skip


def _change_text(change: StateChange) -> str:
    before = "" if change.before is None else f"{change.before} → "
    return f"{change.component_id}: {change.attribute} {before}{change.after}"


def _other_faults(view: ClusterView, history: FaultHistory, span: Span) -> Iterator[Document]:
    for other in (*view.faults.open(), *view.faults.over()):
        if other.last.fault_id == history.last.fault_id:
            continue
        for event in (other.transitions[0], *other.transitions[1:][-1:]):
            at_ms = event.event_at // US_PER_MS
            if span.holds(at_ms):
                yield _line(
                    "fault", 4, at_ms, event.summary,
                    fault_id=event.fault_id, state=event.state.value,
                )  # fmt: skip


def _notes(view: ClusterView, history: FaultHistory, span: Span) -> Iterator[Document]:
    """Yield what people said and did about it."""
    for note in view.notes.values():
        at_ms = note.noted_at // US_PER_MS
        if note.fault_id == history.last.fault_id and span.holds(at_ms):
            cause = None if note.cause is None else f"cause: {note.cause}"
            yield _line(
                "note", 4, at_ms, f"{note.author}: {note.text}" if note.text else note.author,
                action=note.action.value.lower(), detail=cause,
            )  # fmt: skip


def _flows(own: Iterable[AnomalySpan], crossed: Mapping[FlowId, FlowPath]) -> Document:
    """Return the 5-tuples that show it, those that became bad first."""
    by_flow: defaultdict[FlowId, list[AnomalySpan]] = defaultdict(list)
    for one in own:
        by_flow[_flow(one)].append(one)
    first = sorted(by_flow, key=lambda key: (min(s.onset_at for s in by_flow[key]), key))
    return {
        flow_name(key): {
            "route": list(crossed[key].route),
            "traced": crossed[key].trace is not None,
            "spans": [
                without_none(
                    {
                        "kind": s.worst.kind.value.lower().replace("_", " "),
                        "from_ms": s.onset_at // US_PER_MS,
                        "to_ms": None if s.cleared_at is None else s.cleared_at // US_PER_MS,
                    }
                )
                for s in sorted(by_flow[key], key=lambda s: s.onset_at)
            ],
        }
        for key in first[:MAX_FLOWS]
    }


def _series(own: Iterable[AnomalySpan], span: Span) -> Document:
    """Return how many anomalies were open in each step of time, at most so many steps."""
    steps: defaultdict[int, int] = defaultdict(int)
    for one in own:
        steps[max(span.from_ms, one.onset_at // US_PER_MS)] += 1
        if one.cleared_at is not None:
            steps[max(span.from_ms, one.cleared_at // US_PER_MS)] -= 1
    width_ms = max(1, (span.to_ms - span.from_ms) // CHART_POINTS)
    moments = sorted(steps)
    counts, open_now, place = [], 0, 0
    for end_ms in range(span.from_ms, span.to_ms + 1, width_ms):
        most = open_now
        while place < len(moments) and moments[place] <= end_ms:
            open_now += steps[moments[place]]
            most = max(most, open_now)
            place += 1
        counts.append(most)
    return {"from_ms": span.from_ms, "step_ms": width_ms, "bad": counts}


INCIDENT: Final = Page(name="incident", document=document)
