"""What the bench feeds at once is what it would feed one by one."""

from localizer.network.traces import flow_trace_of
from ops.bench.scale.localizer_world import BEGIN_NS, World


def test_first_traces_are_those_of_the_records() -> None:
    """By 5-tuple, with the ends that their keys name."""
    world = World(3)
    flows = range(5, 300)
    batch = world.first_traces(flows, BEGIN_NS)
    expected = [flow_trace_of(world.trace(flow, BEGIN_NS).record) for flow in flows]
    assert list(batch.flow_traces(range(len(batch)))) == expected
    ends = zip(batch.src.tolist(), batch.dst.tolist(), strict=True)
    assert [(batch.ends[a], batch.ends[b]) for a, b in ends] == [key[:2] for key in batch.keys]
