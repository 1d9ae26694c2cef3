"""What the bench feeds at once is what it would feed one by one."""

from localizer.network.traces import flow_trace_of
from ops.bench.scale.localizer_world import BEGIN_NS, Numbered, World, trace_batch


def test_a_batch_is_of_the_traces_of_the_records() -> None:
    """By 5-tuple, with the ends that their keys name; whole ones, and some that broke off."""
    world, numbered = World(3), Numbered()
    events = [
        numbered.event(
            world.trace(flow, BEGIN_NS + flow, broken_at=None if flow % 3 else world.way(flow)[5])
        )
        for flow in range(5, 300)
    ]
    batch = trace_batch(events)
    expected = [flow_trace_of(event.record) for event in events]
    assert len({one.trace.complete for one in expected}) == 2
    assert list(batch.flow_traces(range(len(batch)))) == expected
    assert batch.at_ns.tolist() == [event.at_ns for event in events]
    assert batch.offset.tolist() == [event.offset for event in events]
    ends = zip(batch.src.tolist(), batch.dst.tolist(), strict=True)
    assert [(batch.ends[a], batch.ends[b]) for a, b in ends] == [key[:2] for key in batch.keys]
