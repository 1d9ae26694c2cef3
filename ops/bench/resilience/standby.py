"""The localizer that leads is killed at each cut of a link: the standby tells of the cut."""

from collections import Counter
from typing import Final

from ops.bench.resilience.kills import published_verdicts
from ops.bench.resilience.stage import Cut, Stage
from ops.bench.rig.pair import Pair
from ops.bench.rig.report import Figure, Parts, Say, figure
from ops.running.pipeline import LOCALIZER, MODULES

KILLS: Final = 20
# Of a cut whose leader is killed in the same moment: six seconds are the killed one's session.
TAKE_OVER_S: Final = 10.0


def standby(runs: int, say: Say) -> list[Figure]:
    """Kill the localizer that leads so many times, each time as a link is cut."""
    took_s: list[float] = []
    cuts: list[Cut] = []
    with Stage("bench-standby") as stage:
        pipeline = stage.pipeline
        pipeline.group.stop(LOCALIZER)
        pair = Pair(LOCALIZER, lambda name: pipeline.start(name, MODULES[LOCALIZER]))
        for number in range(runs):
            until_led = pair.kill()
            cuts.append(stage.cut())
            took_s.append(until_led())
            say(f"kill {number + 1}: {cuts[-1]}; another one led after {took_s[-1]:.1f} s")
        told = [published.event for published in published_verdicts(stage.settings)]
    numbers = Counter((event.fault_id, event.seq) for event in told)
    gaps = sum(seq > 1 and (fault, seq - 1) not in numbers for fault, seq in numbers)
    delays_s = [cut.delay_s for cut in cuts if cut.delay_s is not None]
    what = f"localizer that leads killed {runs} times, each as a link is cut"
    return [
        figure(f"{what}: until the standby leads, median", took_s, "s"),
        figure("… until the standby leads, worst", took_s, "s", TAKE_OVER_S, worst=True),
        figure("… cut and kill → verdict, median", delays_s, "s"),
        figure("… cut and kill → verdict, worst", delays_s, "s", TAKE_OVER_S, worst=True),
        figure("… cuts not reported, or not resolved", [sum(not c.resolved for c in cuts)], "", 0),
        figure("… transitions doubled", [numbers.total() - len(numbers)], "", 0),
        figure("… transitions missing before a later one", [gaps], "", 0),
    ]


PARTS: Final[Parts] = {"standby": standby}
