"""5-tuples that are probed, against those on ping lists."""

from localizer.facts.coverage import Coverage, coverage_by_task
from ops.view.cluster import ClusterView


def probed_flows(view: ClusterView) -> dict[str, int]:
    """Return how many 5-tuples each agent probes: windows say it best, else its heartbeat."""
    found = {
        agent: seen.beat.record.flows_active
        for agent, seen in view.agents.items()
        if seen.beat.record.flows_active is not None
    }
    for agent, windows in view.windows.items():
        if windows.last is not None:
            found[agent] = windows.last.flows
    return found


def coverage(view: ClusterView) -> dict[str, dict[str, Coverage]]:
    """Return expected and seen 5-tuples by task, then by agent."""
    return coverage_by_task(
        view.pinglists.values(), probed_flows(view), view.endpoints.__contains__
    )
