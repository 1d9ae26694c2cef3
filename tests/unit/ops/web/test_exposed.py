"""What the live page's server exposes: all that it declares."""

from ops.web.exposed import METRICS, TROUBLE, Exposed
from ops.web.live import LiveSource
from ops.web.source import Trouble
from schemas.kafka.connection import KafkaSettings
from schemas.metrics.family import Sample


def test_all_that_is_declared() -> None:
    """Before anything was read, and while the broker is away."""
    source = LiveSource(KafkaSettings(bootstrap=""), faults_back_ms=0)
    found = {family.metric: family.samples for family in Exposed(source).families()}
    assert set(found) == set(METRICS)
    assert found[TROUBLE] == [Sample(0)]
    source.trouble = Trouble(what="away", todo="wait", since_ms=0)
    found = {family.metric: family.samples for family in Exposed(source).families()}
    assert found[TROUBLE] == [Sample(1)]
