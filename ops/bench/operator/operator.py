"""`make bench-operator`: what the operator's side takes, and how soon it shows a fault."""

from typing import Final

from ops.bench.operator import alerts, page, pictures, storm
from ops.bench.rig.report import Parts

COMMAND: Final = "make bench-operator"
RUNS: Final = 5
DEFAULT_RUNS: Final[dict[str, int]] = {
    "latency": 1,
    "paged": 1,
    "process": 1,
    "review": 3,
    "hostile": 1,
    "bridge": storm.KILLS,
}
NOTES: Final = (
    "First paint: from navigation until sixty cards stand there, in Chromium's software rendering; "
    "the others are drawn when somebody asks for them; until all cells of the matrix are drawn; "
    "until all nodes around a fault are.",
    "Web process: rounds are not written, since the page does not read them; the share is its CPU "
    "time for each second of the cluster. Four of the pages show counters of a job of 4,096 RNICs, "
    "while all 40,000 are counted ten times a second; rates of RNICs are compared, too.",
    "Alertmanager's receiver: a webhook of a real Alertmanager with `group_wait: 0s`, as "
    "`ops/deploy/alertmanager` has it.",
    "Bridge: two of one group; each time the one that leads is killed. An Alertmanager and a "
    "webhook refuse a quarter of the posts and take another quarter without an answer.",
    "Report: 256 5-tuples are bad for an hour, told again every five seconds and traced every ten. "
    "Heartbeats and windows are not read for it. Where a recording holds no verdicts they are made "
    "anew first, which takes as long as `diagnose`.",
)
PARTS: Final[Parts] = {**page.PARTS, **pictures.PARTS, **alerts.PARTS, **storm.PARTS}
