"""Texts of a page for people: what it is, what speaks for it, what to do first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from localizer.verdict.catalogue import KINDS
from ops.bridge.paging.page import Page
from schemas.records import FaultEvent

# A list that somebody reads at night; the page of the operator has all.
MAX_LISTED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Addresses with places for what a page is of; empty: there is none."""

    page: str = ""
    runbook: str = ""

    def page_of(self, fault: FaultEvent) -> str:
        """Return the address of a fault's page."""
        filled = self.page.replace("{fault_id}", quote(fault.fault_id, safe=""))
        return filled.replace("{cluster}", quote(fault.cluster, safe=""))

    def runbook_of(self, fault: FaultEvent) -> str:
        """Return the address of the first steps."""
        return self.runbook.replace("{kind}", quote(fault.fault_kind, safe=""))


def summary(page: Page) -> str:
    """Return one sentence."""
    if page.is_storm:
        return f"{len(page.faults)} more faults at once in cluster {page.labels['cluster']}"
    flaps = page.first.flaps
    again = f" (came back {flaps} time{'s' if flaps > 1 else ''})" if flaps else ""
    return f"{page.first.summary}{again}"


def first_step(fault: FaultEvent) -> str:
    """Return what to do first, "" for a kind that this version does not know."""
    kind = KINDS.get(fault.fault_kind)
    return "" if kind is None else kind.runbook


def evidence(page: Page) -> str:
    """Return what speaks for it; of a storm its faults."""
    if not page.is_storm:
        return "\n".join(page.first.evidence)
    lines = [f"{f.severity} {f.fault_kind} {f.component_id} ({f.fault_id})" for f in page.faults]
    more = len(lines) - MAX_LISTED
    return "\n".join([*lines[:MAX_LISTED], *([f"and {more} more"] if more > 0 else [])])


def annotations(page: Page, links: Links) -> dict[str, str]:
    """Return all texts that are not empty."""
    fault = page.first
    found = {
        "summary": summary(page),
        "evidence": evidence(page),
        "first_step": "" if page.is_storm else first_step(fault),
        "runbook_url": "" if page.is_storm else links.runbook_of(fault),
        "page_url": links.page_of(fault),
        "component": page.labels["component"] if page.is_storm else fault.component_id,
        "kind": page.labels["kind"] if page.is_storm else fault.fault_kind,
        "confidence": "" if page.is_storm else f"{fault.confidence:.2f}",
        "flaps": str(fault.flaps) if fault.flaps and not page.is_storm else "",
        "acknowledged_by": page.acknowledged_by or "",
        "end_reason": page.end_reason or "",
    }
    return {name: text for name, text in found.items() if text}


def iso(at_us: int) -> str:
    """Return a time as RFC 3339 has it.

    >>> iso(1_700_000_000_250_000)
    '2023-11-14T22:13:20.250000Z'
    """
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def named(values: Mapping[str, str]) -> dict[str, str]:
    """Return what is not empty."""
    return {name: value for name, value in values.items() if value}
