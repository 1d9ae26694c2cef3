"""A made-up job of many ranks, of which one launches nothing more."""

from itertools import pairwise

from localizer.collectives.hang_watch import HangWatch
from ops.bench.collectives.large_job import BEGIN_US, FEW, SECOND_US, Load, Rank, launches, messages
from schemas import topics
from schemas.codec import Codec
from schemas.enums import HangClass
from schemas.records import CollectiveBatch
from schemas.units import SECOND_NS, US_NS

LOAD = Load(64, FEW, window_s=8)


def test_ranks_launch_as_often_as_the_load_says() -> None:
    """All of them, but for the last iteration."""
    assert LOAD.rate_hz == 14
    assert len(launches(Rank(20, LOAD), stalls=21)) == LOAD.rate_hz * LOAD.window_s - 6
    assert len(launches(Rank(21, LOAD), stalls=21)) == LOAD.rate_hz * LOAD.window_s - 7


def test_messages_come_in_order_and_hold_each_operation_once() -> None:
    """As collectors send them, each rank every two seconds, until the job has stood for a while."""
    codec = Codec()
    sent = messages(LOAD, 21, codec)
    assert all(one.at_us <= after.at_us for one, after in pairwise(sent))
    assert (sent[0].at_us, sent[-1].at_us) == (BEGIN_US + 2 * SECOND_US, BEGIN_US + LOAD.lasts_us)
    found: list[CollectiveBatch] = [
        codec.decode(topics.COLLECTIVE_OP, one.value) for one in sent if one.key.endswith("|20")
    ]
    numbers = [operation.record_id for batch in found for operation in batch.operations]
    assert numbers == list(range(len(launches(Rank(20, LOAD), stalls=21))))


def test_the_watcher_names_the_rank_that_stalls() -> None:
    """It alone, and all others wait."""
    codec, watch = Codec(), HangWatch("bench")
    sent = messages(LOAD, 21, codec)
    for one in sent:
        watch.feed(one.key, codec.decode(topics.COLLECTIVE_OP, one.value), one.at_us * US_NS)
    (hang,) = watch.advance(sent[-1].at_us * US_NS + SECOND_NS)
    assert (hang.hang_class, hang.ranks) == (HangClass.NEVER_LAUNCHED, (21,))
    assert len(hang.waiting_ranks) == LOAD.ranks - 1
