"""What the skeleton job exposes: all that it declares, before and after its first status."""

from dataclasses import dataclass, field

from schemas.metrics.family import Sample
from schemas.records import Task
from skeleton_job.core import SkeletonCore
from skeleton_job.edge.counts import Counts
from skeleton_job.edge.exposed import METRICS, OLDEST, TASKS, Exposed
from skeleton_job.lists.pinglists import ListConfig
from skeleton_job.tasks.inference import InferenceConfig
from tests.unit.skeleton_job.records import CLUSTER


@dataclass
class Service:
    """What has counts."""

    counts: Counts = field(default_factory=lambda: Counts(["task.v1"]))


def test_all_that_is_declared_from_the_start_on() -> None:
    """Jobs without a skeleton are counted; one that ended is not behind any more."""
    service = Service()
    exposed = Exposed(service)
    assert {family.metric for family in exposed.families()} == set(METRICS)
    core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
    core.apply_task("t1", Task(cluster=CLUSTER, task_id="t1", submitted_at=1, endpoints=()))
    service.counts.inferred_ns = {"t1": 5 * 10**9, "ended": 10**9}
    service.counts.note_status(core, 0)
    found = {family.metric: family.samples for family in exposed.families()}
    assert set(found) == set(METRICS)
    assert found[TASKS] == [Sample(1, ("no",)), Sample(0, ("yes",))]
    assert found[OLDEST] == [Sample(5.0)]
