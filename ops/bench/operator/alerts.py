"""How long a verdict takes from its topic to whom a real Alertmanager tells."""

import time
from typing import Final

from ops.bench.operator import cluster
from ops.bench.operator.page import now_ms, topics
from ops.bench.operator.receivers import Receiver, alertmanager, receiving
from ops.bench.operator.site import Writer
from ops.bench.operator.storm import bridge_command
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.running.processes import ProcessGroup
from schemas import topics as t

VERDICTS: Final = 20
READY_S: Final = 60.0
# Verdicts that come faster would be a storm, which is told with another page.
GAP_S: Final = 1.0


def paged(runs: int, say: Say) -> list[Figure]:
    """Write verdicts one by one, and wait for each at the receiver."""
    took_s: list[float] = []
    with (
        scratch_folder() as folder,
        topics() as kafka,
        receiving(Receiver()) as people,
        alertmanager(folder / "alertmanager", people) as address,
        ProcessGroup(folder / "logs") as group,
    ):
        child = group.start("bridge", bridge_command(folder, kafka, {"alertmanager": address}))
        wait_until(lambda: bool(child.events("bridge.ready")), READY_S, "no bridge is ready")
        writer = Writer(kafka)
        for number in range(runs * VERDICTS):
            event = cluster.fault(number, now_ms())
            writer.write([(t.FAULT_EVENT, event.fault_id, event)])
            began_s = time.time()
            wait_until(
                lambda name=event.fault_id: name in _told(people),  # type: ignore[misc]
                READY_S, f"{event.fault_id} is told to nobody", poll_s=0.02,
            )  # fmt: skip
            took_s.append(_told(people)[event.fault_id] - began_s)
            time.sleep(GAP_S)
    say(f"{len(took_s)} verdicts, the slowest after {max(took_s):.2f} s")
    what = "verdict on its topic → at Alertmanager's receiver, worst"
    return [figure(what, took_s, "s", 2.0, worst=True)]


def _told(people: Receiver) -> dict[str, float]:
    """Return when each fault was told first, seconds since the epoch."""
    found: dict[str, float] = {}
    for post in list(people.posts):
        for alert in post.json["alerts"]:
            found.setdefault(alert["labels"]["fault_id"], post.at_s)
    return found


PARTS: Final[Parts] = {"paged": paged}
