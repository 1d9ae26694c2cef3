"""Who lives on this host: its own endpoints and those of the other agents on it. Pure."""

from typing import Final

from schemas.records import Endpoint

# 128 virtual functions on each of 8 RNICs are 1,024 endpoints.
MAX_LOCALS: Final = 4_096


class LocalEndpoints:
    """Registered endpoints of one host, by id."""

    def __init__(self, *, host_id: str, cluster: str) -> None:
        self._host_id = host_id
        self._cluster = cluster
        self._addresses: dict[str, str] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each endpoint."""
        return self._addresses

    def registered(self, endpoint: Endpoint) -> None:
        """Take in a registration; one that has moved to another host leaves."""
        here = endpoint.host_id == self._host_id and endpoint.cluster == self._cluster
        if not here:
            self._addresses.pop(endpoint.endpoint_id, None)
        elif endpoint.endpoint_id in self._addresses or len(self._addresses) < MAX_LOCALS:
            self._addresses[endpoint.endpoint_id] = endpoint.address

    def left(self, endpoint_id: str) -> None:
        """Take in a tombstone."""
        self._addresses.pop(endpoint_id, None)
