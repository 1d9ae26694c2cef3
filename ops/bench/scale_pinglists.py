"""Ping lists of a large cluster: churn, the length of lists, and what an agent does with them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ops.bench.growth import FLAT, Curve, told
from ops.bench.ping_list_cluster import CLUSTER, RAILS, Cluster
from ops.bench.report import Figure, figure
from probers.lists.follower import PingListFollower
from schemas.codec import Codec
from schemas.records import Endpoint, PingList, Task, TaskEndpoint
from schemas.topics import ENDPOINT, PINGLIST
from skeleton_job.core import SkeletonCore
from skeleton_job.lists.pinglists import MAX_LIST_BYTES, ListConfig
from skeleton_job.tasks.due import InferenceConfig

Say = Callable[[str], None]
COMMAND: Final = "make bench-scale"
HOSTS: Final = (625, 1_250, 2_500, 5_000)
CONTAINERS_A_MINUTE: Final = 2_000
SECONDS: Final = 60
# Each makes a job that no list holds as a whole.
LARGE_HOSTS: Final = (256, 1_024)
# Registrations of one agent's targets, told again and again with new ports.
ROUNDS: Final = 20


def churn(runs: int, say: Say) -> list[Figure]:
    """Let 2,000 containers a minute come and go in clusters of several sizes."""
    seconds: dict[int, list[float]] = {hosts: [] for hosts in HOSTS}
    wrong: list[float] = []
    largest: list[float] = []
    for _ in range(runs):
        for hosts in HOSTS:
            cluster = Cluster(hosts)
            cluster.fill()
            costs = cluster.churn(SECONDS, CONTAINERS_A_MINUTE)
            seconds[hosts].append(costs.cpu_s)
            largest.append(float(costs.largest))
            say(
                f"{hosts * RAILS:,} RNICs, {len(cluster.jobs):,} tasks, {costs.containers:,} "
                f"containers in {SECONDS} s, {costs.events:,} records: {costs.cpu_s:.2f} s of CPU; "
                f"{costs.lists:,} lists for {costs.changed:,} agents that changed, "
                f"{costs.needless} needless"
            )
            wrong.append(
                float(abs(costs.lists - costs.changed) + costs.needless + _others(cluster))
            )
    most = HOSTS[-1] * RAILS
    per_container = [statistics.median(seconds[h]) / CONTAINERS_A_MINUTE * 1e3 for h in HOSTS]
    curve = Curve(
        name="ping lists: a container that begins, and one that ends",
        axis="RNICs", unit="ms", sizes=tuple(float(h * RAILS) for h in HOSTS),
        costs=tuple(per_container),
    )  # fmt: skip
    return [
        figure(
            f"ping lists, {most:,} RNICs, 2,000 tasks, 2,000 containers a minute: CPU of a minute",
            seconds[HOSTS[-1]], "s", bar=60.0, sense="<=", command=COMMAND,
        ),
        figure(
            "ping lists: agents republished but not changed, or the other way", wrong, "",
            bar=0.0, sense="<=", command=COMMAND, worst=True,
        ),
        figure(
            "ping lists: the longest under churn", [v / 1024 for v in largest], "KiB",
            bar=MAX_LIST_BYTES / 1024, sense="<=", command=COMMAND, worst=True,
        ),
        told(curve, bar=FLAT, command=COMMAND, say=say),
    ]  # fmt: skip


def _others(cluster: Cluster) -> int:
    """Return how many lists are not those of a core that sees the cluster for the first time."""
    anew = {a: (x.phase, x.targets) for a, x in cluster.from_scratch().items()}
    told_ = {a: (x.phase, x.targets) for a, x in cluster.lists.items()}
    return sum(anew.get(a) != told_.get(a) for a in anew.keys() | told_.keys())


def large_jobs(runs: int, say: Say) -> list[Figure]:
    """Publish the basic lists of jobs whose full mesh no list holds."""
    longest: list[float] = []
    for _ in range(runs):
        for hosts in LARGE_HOSTS:
            core = SkeletonCore(CLUSTER, ListConfig(), InferenceConfig())
            core.task("job", _large(hosts))
            begin = time.process_time()
            sizes = [len(Codec().encode(PINGLIST, due)) for _, due in core.lists_due() if due]
            longest.append(max(sizes) / 1024)
            say(
                f"a job of {hosts * RAILS:,} RNICs: lists of {longest[-1]:.1f} KiB at most, "
                f"{time.process_time() - begin:.1f} s of CPU, {core.counts['lists_cut']} cut"
            )
    return [
        figure(
            f"ping lists: the longest of a job of {LARGE_HOSTS[-1] * RAILS:,} RNICs",
            longest, "KiB", bar=MAX_LIST_BYTES / 1024, sense="<=", command=COMMAND, worst=True,
        )
    ]  # fmt: skip


def activation(runs: int, say: Say) -> list[Figure]:
    """Time what an agent does when an endpoint of its list registers, and another's."""
    own: dict[int, list[float]] = {hosts: [] for hosts in HOSTS}
    foreign_us: list[float] = []
    for _ in range(runs):
        for hosts in HOSTS:
            cluster = Cluster(hosts)
            cluster.fill()
            agent_id = "agent-00000"
            follower = cluster.follower(agent_id)
            every = cluster.registrations()
            for endpoint in every:
                follower.registered(endpoint)
            own[hosts].append(_own_us(follower, cluster.lists[agent_id], every))
            codec = Codec()
            values = [codec.encode(ENDPOINT, endpoint) for endpoint in every[-2_000:]]
            begin = time.process_time()
            for value in values:
                follower.registered(codec.decode(ENDPOINT, value))
            foreign_us.append((time.process_time() - begin) / len(values) * 1e6)
    curve = Curve(
        name="agent: a registration of a target, flows made anew",
        axis="RNICs", unit="µs", sizes=tuple(float(h * RAILS) for h in HOSTS),
        costs=tuple(statistics.median(own[h]) for h in HOSTS),
    )  # fmt: skip
    share = statistics.median(foreign_us) * CONTAINERS_A_MINUTE * RAILS / 60 / 1e6
    say(f"a registration of nobody on the list: {statistics.median(foreign_us):.0f} µs; "
        f"of 2,000 containers a minute: {share:.2%} of a core")  # fmt: skip
    return [
        told(curve, bar=FLAT, command=COMMAND, say=say),
        figure(
            "agent: registrations of nobody on its list, 2,000 containers a minute: of a core",
            [us * CONTAINERS_A_MINUTE * RAILS / 60 / 1e4 for us in foreign_us], "%",
            bar=None, sense="<=", command=COMMAND,
        ),
    ]  # fmt: skip


def _own_us(follower: PingListFollower, made: PingList, every: list[Endpoint]) -> float:
    """Return microseconds for a registration of a target of the list, flows included."""
    wanted = {t.dst for t in made.targets}
    mine = [e for e in every if e.endpoint_id in wanted]
    begin = time.process_time()
    for number in range(ROUNDS):
        for endpoint in mine:
            follower.registered(replace(endpoint, port=5_000 + number))
            follower.flows()
    return (time.process_time() - begin) / (ROUNDS * len(mine)) * 1e6


def _large(hosts: int) -> Task:
    return Task(
        cluster=CLUSTER,
        task_id="job",
        submitted_at=1,
        endpoints=tuple(
            TaskEndpoint(
                endpoint_id=f"training-job-w{host}/r{rail}",
                container_id=f"training-job-w{host}",
                host_id=f"host-{host}",
                agent_id=f"agent-{host}",
                rail=rail,
            )
            for host in range(hosts)
            for rail in range(RAILS)
        ),
    )


PARTS: Final[Mapping[str, Callable[[int, Say], list[Figure]]]] = {
    "ping-list-churn": churn,
    "ping-list-length": large_jobs,
    "ping-list-activation": activation,
}
