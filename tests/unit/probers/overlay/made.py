"""Settings, findings and registrations for tests of the overlay tables."""

from typing import Any

from probers.config.overlay import OverlayConfig, checked_overlay
from schemas.enums import Transport
from schemas.records import Endpoint

TABLE: dict[str, Any] = {
    "source": "ovs",
    "vswitch": "v0",
    "vtep_addresses": ["10.9.0.1"],
    "vtep_ids": "vtep:{address}",
}


def config(**changes: object) -> OverlayConfig:
    """Return settings that are right, with changes."""
    wrong: list[str] = []
    found = checked_overlay({**TABLE, **changes}, wrong)
    assert not wrong, wrong
    assert found is not None
    return found


def endpoint(endpoint_id: str, address: str, *, host: str = "h0", cluster: str = "c1") -> Endpoint:
    """Return a registration."""
    return Endpoint(
        cluster=cluster,
        endpoint_id=endpoint_id,
        agent_id=f"agent-{host}",
        container_id=host,
        host_id=host,
        rail=0,
        transport=Transport.UDP,
        address=address,
        port=4_000,
        incarnation=1,
        registered_at=1,
    )
