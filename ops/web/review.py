"""The incidents of a recording as documents, each with all that became known of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.view.cluster import ClusterView
from ops.web.pages.incident import INCIDENT
from ops.web.pages.page import Document
from ops.web.pages.report import commands
from ops.web.recorded import RecordedSource


@dataclass(frozen=True, slots=True)
class Incidents:
    """Documents of the page Incident in the order of their onsets, and what replays them."""

    documents: list[Document]
    commands: list[str]


def incidents(source: RecordedSource, only: Sequence[str]) -> Incidents:
    """Return the incidents of a recording; `only`: ids of those that are wanted, or none for all.

    Raises
    ------
    UnknownItemError
        If there is no fault of an id.
    """
    source.read()

    def made(view: ClusterView, now_ms: int) -> list[Document]:
        histories = [*view.faults.open(), *view.faults.over()]
        ids = list(only) or [
            h.last.fault_id
            for h in sorted(histories, key=lambda h: (h.last.onset_at, h.last.fault_id))
        ]
        return [INCIDENT.document(view, {"fault": one}, now_ms) for one in ids]

    first_ms, last_ms = source.span_ms or (0, 0)
    return Incidents(source.look(made), commands(source.folder, first_ms, last_ms))
