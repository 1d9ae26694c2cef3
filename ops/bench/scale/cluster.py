"""A cluster of 40,000 RNICs by real messages: cost of all processes, and their verdicts."""

import statistics
from collections.abc import Sequence
from typing import Final

from ops.bench.cluster.run import ClusterRun, Stored, measure
from ops.bench.cluster.shape import ClusterShape
from ops.bench.rig.report import Figure, Parts, Say, Sense, figure, scratch_folder
from schemas.topics import ANOMALY, PROBE_WINDOW
from skeleton_job.lists.pinglists import MAX_LIST_BYTES

# Workers commit each second, and are looked at twice a second.
CAUGHT_UP_S: Final = 3.0
# At any time, while a spine is dead, too.
BEHIND_S: Final = 5.0
# A fault in the middle of all this.
VERDICT_S: Final = 5.0
# Of a simulator that is later, the agents were not at 1 Hz, and nobody was put to the test.
SIMULATOR_LATE_S: Final = 2.0
# What all processes together take of two cores leaves some room at this size.
SMALLER_AGENTS: Final = 2_000
SMALLER_S: Final = 300
KIB: Final = 1_024
MB: Final = 1e6


def cluster(runs: int, say: Say, shape: ClusterShape | None = None) -> list[Figure]:
    """Let a cluster live: the published one, for ten minutes."""
    shape = shape or ClusterShape()
    done = []
    for _ in range(runs):
        say(f"{shape.agents:,} agents, {shape.rnics:,} RNICs, {shape.seconds} s")
        with scratch_folder() as folder:
            done.append(measure(shape, folder, say))
        say(sentence(done[-1]))
    return figures(done)


def sentence(run: ClusterRun) -> str:
    """Return what came of a run, for a line of progress."""
    s = run.summary or {}
    kept = "kept up" if run.lag_s <= CAUGHT_UP_S else "did NOT keep up"
    later = "not within the time" if run.drained_s is None else f"{run.drained_s:.1f} s later"
    text = (
        f"{s['results']:,} results, {s['messages']:,} messages in {s['seconds']:.0f} s; "
        f"the workers {kept}: {run.lag_s:.1f} s ({run.lag_messages:,} messages) behind at the end, "
        f"{run.worst_lag_s:.1f} s at most, all taken {later}"
    )
    if run.ended:
        text += f"; ended by themselves: {', '.join(run.ended)}"
    return text


def figures(runs: Sequence[ClusterRun]) -> list[Figure]:
    """Return the rows of one size."""
    ended = [run.summary or {} for run in runs]
    size = f"cluster of {runs[0].shape.rnics:,} RNICs, live"

    def row(
        name: str, samples: Sequence[float | None], unit: str, *,
        bar: float | None = None, sense: Sense = "<=", worst: bool = False,
    ) -> Figure:  # fmt: skip
        known = [s for s in samples if s is not None]
        # What is unknown of one run is not made good by another.
        whole = known if len(known) == len(samples) else []
        return figure(f"{size}: {name}", whole, unit, bar, sense, worst=worst)

    rows = [
        row("results published", [t["results"] / t["seconds"] for t in ended], "/s", sense=">="),
        row("messages published", [t["messages"] / t["seconds"] for t in ended], "/s", sense=">="),
        row("containers created", [t["containers"] / t["seconds"] * 60 for t in ended], "a minute",
            sense=">="),
        row("messages that the simulator published late, the latest",
            [t["behind_s"] for t in ended], "s", bar=SIMULATOR_LATE_S, worst=True),
        row("messages not published", [t["unpublished"] for t in ended], "", bar=0, worst=True),
        row("workers behind at the end", [r.lag_s for r in runs], "s", bar=CAUGHT_UP_S, worst=True),
        row("workers behind, the most", [r.worst_lag_s for r in runs], "s", bar=BEHIND_S,
            worst=True),
        row("workers: seconds to take what was left", [r.drained_s for r in runs], "s",
            worst=True),
        row("lists published for each agent that changed",
            [t["lists"] / max(1, t["agents_changed"]) for t in ended], ""),
        row("lists published needlessly", [t["lists_needless"] for t in ended], "", bar=0,
            worst=True),
        row("lists that are wrong at the end", [t["lists_wrong"] for t in ended], "", bar=0,
            worst=True),
        row("the longest list", [t["lists_longest"] / KIB for t in ended], "KiB",
            bar=MAX_LIST_BYTES / KIB, worst=True),
        row("a container's registration → its first probes, median",
            [t["activation_s"] for t in ended], "s"),
        row("a container's registration → its first probes, worst",
            [t["activation_worst_s"] for t in ended], "s", worst=True),
    ]  # fmt: skip
    for number, fault in enumerate(runs[0].verdicts.injected):
        delays = [r.verdicts.delay_s(r.verdicts.injected[number]) for r in runs]
        named = [float(d is not None) for d in delays]
        rows.append(row(f"{fault.what}: named", named, "of runs", bar=1, sense=">=", worst=True))
        rows.append(row(f"{fault.what}: until the verdict", delays, "s", bar=VERDICT_S, worst=True))
    false, begun = (
        [float(len(r.verdicts.false(begun=begun))) for r in runs] for begun in (False, True)
    )
    rows += [
        row("false verdicts", false, "", bar=0, worst=True),
        row("false verdicts of jobs that began during a fault", begun, "", bar=0, worst=True),
        row("processes that ended by themselves", [len(r.ended) for r in runs], "", bar=0,
            worst=True),
    ]  # fmt: skip
    behind = [r.localizer_behind_s for r in runs]
    rows += [
        row("localizer behind, as it says itself, median",
            [statistics.median(b) if b else None for b in behind], "s"),
        row("localizer behind, as it says itself, the most",
            [max(b, default=None) for b in behind], "s", bar=BEHIND_S, worst=True),
    ]  # fmt: skip
    rows.append(
        row("simulator: CPU, of a core", [t["cpu_s"] / t["seconds"] * 100 for t in ended], "%")
    )
    rows.append(row("simulator: RSS", [t["peak_bytes"] / MB for t in ended], "MB", worst=True))
    for name in runs[0].costs.share:
        shares = [r.costs.share.get(name) for r in runs]
        memory = [r.costs.rss_bytes.get(name, 0) / MB for r in runs]
        rows.append(row(f"{name}: CPU, of a core", [s and s * 100 for s in shares], "%"))
        rows.append(row(f"{name}: RSS", memory, "MB", worst=True))
    if all(run.stored for run in runs):
        for topic in (PROBE_WINDOW.name, ANOMALY.name):
            each = [_each(run.stored[topic]) for run in runs]
            rows.append(row(f"on the broker, {topic}", each, "bytes a record"))
    return rows


def _each(stored: Stored) -> float | None:
    return stored.size / stored.records if stored.records else None


def smaller_cluster(runs: int, say: Say) -> list[Figure]:
    """Let a cluster live for five minutes that two cores bear, the simulator among them."""
    return cluster(runs, say, ClusterShape(agents=SMALLER_AGENTS, seconds=SMALLER_S))


PARTS: Final[Parts] = {"cluster": cluster, "cluster-16000": smaller_cluster}
