"""What the bridge exposes: all that it declares."""

from ops.bridge.config import build_config
from ops.bridge.delivery import StateDelivery
from ops.bridge.exposed import METRICS, PENDING, Exposed
from ops.bridge.http import Answer, Outcome
from ops.bridge.service import Service
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.metrics.family import Sample
from schemas.process.eventlog import EventLog
from tests.unit.ops.bridge.made import CLUSTER

DONE = Answer(Outcome.DELIVERED)


def test_all_that_is_declared() -> None:
    """Also before anything was read; each target has its own values."""
    service = Service(
        KafkaSettings(bootstrap="", cluster=CLUSTER), Codec(), build_config({}, {}, {})
    )
    service.deliveries.append(StateDelivery("am", EventLog("test"), lambda _: DONE, 60.0))
    found = {f.metric: f.samples for f in Exposed(service).families()}
    assert set(found) == set(METRICS)
    assert found[PENDING] == [Sample(0, ("am",))]
