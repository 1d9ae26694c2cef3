"""`make soak`: an agent for an hour, its broker restarted in between; its memory may not grow."""

from collections.abc import Mapping, Sequence
from typing import Final

from ops.bench.agent.rig import AgentRig, Shape
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder

COMMAND: Final = "make soak"
RUNS: Final = 1
LASTS_S: Final = 3600.0
# The broker is killed and restarted after these parts of the time: once before the slope is
# looked at, so that the agent has had its first outage, and twice within.
RESTARTS_AT: Final = (0.2, 0.5, 0.8)
AWAY_S: Final = 10.0
SAMPLE_S: Final = 10.0
# A short soak has as many samples to fit a line through.
MIN_SAMPLES: Final = 60
MB: Final = 1e6
RSS_BAR_MB: Final = 30.0
# An agent lives for weeks: with 50 KB an hour it takes a quarter more after seven of them.
GROWTH_BAR_KB_H: Final = 50.0
# A young agent still grows, and most in its first outages: 1.9 MB in a soak of 25 s (measured).
# Within minutes no bound below that can be held; a leak of a packet's size at each probe shows.
YOUNG_KB: Final = 3_072.0
HOUR_S: Final = 3600.0
KB: Final = 1e3

NOTES: Final = (
    "The slope of the last two thirds by least squares: the first third has what an agent "
    "learns at its start. The broker is killed and restarted in between.",
)


def slope(times_s: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through the last two thirds, least squares, per second.

    Raises
    ------
    ValueError
        If there are fewer than two different times.
    """
    first = len(times_s) // 3
    x, y = times_s[first:], values[first:]
    mean_x, mean_y = sum(x) / max(len(x), 1), sum(y) / max(len(y), 1)
    spread = sum((a - mean_x) ** 2 for a in x)
    if spread == 0:
        raise ValueError(f"{len(x)} samples at one time have no slope")
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def growth_bar_kb_h(seconds: float) -> float:
    """Return what an agent's memory may seem to grow by in an hour, seen for so long."""
    return GROWTH_BAR_KB_H if seconds >= HOUR_S else YOUNG_KB * HOUR_S / seconds


def soak(runs: int, say: Say, *, seconds: float) -> list[Figure]:
    """Run one agent for so long."""
    slopes, largest = [], []
    for turn in range(runs):
        with scratch_folder() as folder, AgentRig(folder, Shape()) as rig:
            times, rss = run(rig, seconds, say)
        slopes.append(slope(times, rss) * HOUR_S / KB)
        largest.append(max(rss) / MB)
        say(f"{turn + 1}/{runs}: {slopes[-1]:.0f} KB an hour, {largest[-1]:.1f} MB at most")
    what = f"{Shape()}, {seconds:.0f} s with {len(RESTARTS_AT)} restarts of the broker"
    bar = growth_bar_kb_h(seconds)
    return [
        figure(f"{what}: growth of RSS", slopes, "KB an hour", bar, worst=True),
        figure(f"{what}: RSS", largest, "MB", RSS_BAR_MB, worst=True),
    ]


def run(rig: AgentRig, seconds: float, say: Say) -> tuple[list[float], list[float]]:
    """Let an agent run, its broker be restarted; return times and RSS, seconds and bytes."""
    sample_s = min(SAMPLE_S, seconds / MIN_SAMPLES)
    restarts = [part * seconds for part in RESTARTS_AT]
    times: list[float] = []
    rss: list[float] = []
    at_s = 0.0
    while at_s < seconds:
        if restarts and at_s >= restarts[0]:
            restarts.pop(0)
            rig.take_broker()
            away = rig.measure(min(AWAY_S, seconds / 10))
            rig.give_broker()
            say(f"{at_s:.0f} s: broker restarted")
            at_s += away.seconds
        span = rig.measure(sample_s)
        at_s += span.seconds
        times.append(at_s)
        rss.append(float(span.memory[-1].rss_bytes))
        if len(rss) % MIN_SAMPLES == 0:
            say(f"{at_s:.0f} s: {rss[-1] / MB:.2f} MB, {span.cpu_percent:.2f} % of a core")
    return times, rss


PARTS: Final[Parts] = {"soak": soak}
DEFAULT_RUNS: Final[Mapping[str, int]] = {}
