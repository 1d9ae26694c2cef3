"""What the skeleton job takes over from the process that led before it."""

from typing import Any, cast

from confluent_kafka import Consumer

from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings
from schemas.topics import PINGLIST
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.outbox import Outbox
from skeleton_job.edge.service import Service
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from tests.unit.schemas.valid import CLUSTER, valid_datum
from tests.unit.skeleton_job.edge.test_inbox import Received


def test_the_last_list_before_it_led_is_taken_over_and_its_own_are_not() -> None:
    """The record that completes the reading is part of it; those after it are the job's own."""
    core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
    service = Service(KafkaSettings(bootstrap="", cluster=CLUSTER), core, Codec(), look_back_ns=0)
    service._names = {PINGLIST.name: PINGLIST}
    datum = valid_datum(PINGLIST.name)
    last = Received(PINGLIST, {**datum, "version": 5})
    own = Received(PINGLIST, {**datum, "version": 9})
    service._read = {(PINGLIST.name, last.partition()): last.offset()}
    service._own_ends = {(PINGLIST.name, last.partition()): last.offset() + 1}
    for message in (last, own):
        service._take(cast(Consumer, None), cast(Any, message), cast(Outbox, None))
    agent_id = str(datum[PINGLIST.key_field])
    assert core._versions == {agent_id: 5}
