"""Scrapes of a process's metrics, as Prometheus makes them."""

from typing import Any
from urllib.request import Request, urlopen

from prometheus_client.openmetrics import parser

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# Without types.
_PARSE: Any = parser.text_string_to_metric_families


def scrape_text(address: str, accept: str = OPENMETRICS) -> str:
    """Return the text at an address."""
    request = Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urlopen(request, timeout=30) as response:  # noqa: S310 - our own process
        return str(response.read().decode())


def scrape(address: str) -> dict[str, Any]:
    """Return the families by name, read by a strict parser."""
    return {family.name: family for family in _PARSE(scrape_text(address))}
