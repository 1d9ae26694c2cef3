"""Records that are within all bounds but extreme in one field: what others show is still found."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from localizer.config import CoreConfig
from localizer.edge.reader import LOG_INPUTS, STATE_INPUTS
from ops.bench.resilience.mutations import mutations, shifted
from ops.lab.shape import LabShape
from schemas.codec import Codec, OutOfBoundsError, to_datum
from schemas.topics import TASK, Topic
from schemas.units import MS_NS, SECOND_NS, US_NS
from streams.core.outputs import PROGRESS_KEY
from tests.unit.localizer.simlab import CLUSTER, Record, SimLab, localize
from tests.unit.schemas.valid import ARRIVAL_NS, valid_datum

CODEC = Codec()
LINK = "link:leaf:p0-0--spine:0"
BYSTANDER = 3
SHAPE = LabShape()
HEALTHY_S = 4
# A verdict of a cut, in event time.
SOON_NS = 5 * SECOND_NS


@cache
def incident() -> tuple[tuple[Record, ...], int]:
    """Return the log of a lab in which a link is cut, and the number of records before that."""
    lab = SimLab(SHAPE, seed=5, flows=2)
    lab.run(HEALTHY_S)
    before = len(lab.log)
    lab.effects.links[LINK] = (1.0, 0)
    lab.run(4)
    return tuple(lab.log), before


def originals(topic: Topic, log: tuple[Record, ...]) -> list[Record]:
    """Return the last record about the bystander, or a new one where there is none.

    Of the task, which is everybody's, another one; of anomalies a mark of progress, too.
    """
    marks = (f"h{BYSTANDER}", f"w{BYSTANDER}")
    found = [r for r in log if r.topic == topic.name and r.record is not None]
    named = [r for r in found if any(m in str(getattr(r.record, "agent_id", r.key)) for m in marks)]
    progress = [r for r in found if r.key == PROGRESS_KEY][-1:]
    if topic is TASK:
        (task,) = found
        own = tuple(e for e in task.record.endpoints if e.agent_id == f"agent-h{BYSTANDER}")
        forged = replace(task.record, task_id="forged", endpoints=own)
        return [replace(task, key="forged", record=forged)]
    if not named:
        at_us = log[-1].timestamp_ms * 1_000
        datum = shifted(valid_datum(topic.name, CLUSTER), at_us - ARRIVAL_NS // US_NS)
        record = CODEC.decode(topic, CODEC.encode_datum(topic, datum))
        named = [replace(log[-1], topic=topic.name, key=datum[topic.key_field], record=record)]
    return [named[-1], *progress]


def accepted(topic: Topic, one: Record, at_ms: int) -> Iterator[Record]:
    """Yield the mutated records that readers accept at a time, but for the longest arrays."""
    for mutation in mutations(topic, to_datum(one.record)):
        if mutation.value.endswith("items") and mutation.value != "0 items":
            continue
        # No encoder writes what its type does not hold.
        with suppress(ValueError, OverflowError, TypeError, OutOfBoundsError):
            value = CODEC.encode_datum(topic, mutation.datum)
            record = CODEC.decode(topic, value, arrival_ns=at_ms * MS_NS)
            yield replace(one, record=record, timestamp_ms=at_ms)


@pytest.mark.parametrize("topic", [*STATE_INPUTS, *LOG_INPUTS], ids=lambda t: str(t.name))
def test_a_cut_is_found_after_mutated_records_of_a_bystander(topic: Topic) -> None:
    """Within seconds of event time."""
    log, before = incident()
    at_ms = log[before - 1].timestamp_ms
    forged = [
        replace(record, offset=10**6 + number)
        for one in originals(topic, log[:before])
        for number, record in enumerate(accepted(topic, one, at_ms))
    ]
    assert len(forged) > 5
    events = localize([*log[:before], *forged, *log[before:]], CoreConfig(cluster=CLUSTER))
    found = [e.event_at * 1_000 - at_ms * MS_NS for e in events if e.component_id == LINK]
    assert found
    assert min(found) < SOON_NS
