"""The process that publishes what the agents and the platform of a whole cluster publish.

`python -m ops.bench.cluster.simulator --bootstrap … --shape …` prints JSON, one event a line:
`filled`, `begin`, `fault`, `healed`, `going` every ten seconds, `over`, and `end` with all counts.
It consumes ping lists from their topic, as agents do, and probes their targets.
"""

import argparse
import heapq
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from arena.simulation.setup import Rec
from ops.bench.cluster.agents import Fleet, Outgoing
from ops.bench.cluster.jobs import Job, Jobs
from ops.bench.cluster.lists import Lists
from ops.bench.cluster.shape import CLUSTER, RNIC, ClusterShape, PlannedFault
from ops.bench.rig.process_cost import memory
from ops.bench.rig.publisher import Publisher
from ops.log.watch import Watch
from schemas.codec import Codec
from schemas.kafka.connection import KafkaSettings, settings_from_table
from schemas.topics import BY_NAME, ENDPOINT, PINGLIST, TASK
from schemas.units import SECOND_NS

SLOT_S: Final = 0.01
# One client sends for all agents: it sends as often as its broker can bear beside the processes
# that are measured. What a request of each agent costs is measured by `connections`.
LINGER_MS: Final = 50
CHURN_S: Final = 0.1
TELL_S: Final = 10.0
# All lists of 5,000 agents, made and sent by a job that shares two cores with others.
LISTS_TIMEOUT_S: Final = 240.0
# What the last containers changed is published when no list has come for so many seconds.
QUIET_S: Final = 5
SETTLE_S: Final = 60.0
# Agents whose second is made in one go: one that is late must still look at what comes.
AGENTS_AT_ONCE: Final = 250
# RNICs with all of their paths that a localizer gets to know in a second, at least.
SETTLED_HZ: Final = 1_000.0
# Beyond its time a simulator that cannot keep up ends, too, and says what it has not published.
OVERTIME_S: Final = 60.0
# A dead RNIC is blamed where more than one other end sees it.
FAULT_HOSTS: Final = 3


class Simulator:
    """The cluster in real time."""

    def __init__(self, settings: KafkaSettings, shape: ClusterShape, watch: Watch) -> None:
        self.shape = shape
        self._watch = watch
        self._codec = Codec()
        self._jobs = Jobs(shape)
        self._fleet = Fleet(shape, self._codec, time.time_ns())
        self._lists = Lists(self._jobs)
        self._sender = Publisher(settings, **{"linger.ms": LINGER_MS})
        self._waiting: list[tuple[int, int, Outgoing]] = []
        self._number = 0
        self._results = 0
        self._behind_ns = 0
        # When something was dead, and the jobs that began then.
        self._struck_ns: list[tuple[int, int]] = []
        self._begun: list[str] = []
        # Host → when its container began, until it probes.
        self._starting: dict[int, int] = {}
        self._activation_s: list[float] = []
        # Whether everything is counted yet; what CPU time and containers were when that began.
        self._counting = False
        self._before = (0.0, 0)

    def run(self) -> dict[str, Any]:
        """Fill the cluster, let it live for its time, and return what was published."""
        self._fill()
        self._lists.begin()
        self._starting.clear()
        begin_ns = (time.time_ns() // SECOND_NS + 2 + self.shape.warm_s) * SECOND_NS
        self._fleet.settled(begin_ns - self.shape.warm_s * SECOND_NS)
        left = self._live(begin_ns)
        print_event("over")
        cpu_s = time.process_time() - self._before[0]
        seconds = time.time() - begin_ns / 1e9
        peak_bytes = memory(os.getpid()).peak_bytes
        counts = dict(self._sender.counts)
        lost = self._sender.flush()
        self._settle()
        return {
            **counts, **self._lists.counts(), "results": self._results, "seconds": seconds,
            "cpu_s": cpu_s, "peak_bytes": peak_bytes, "unpublished": left + lost,
            "behind_s": self._behind_ns / 1e9,
            "begun": self._begun, "containers": self._jobs.begun - self._before[1],
            "jobs": len(self._jobs.running),
            "activation_s": _middle(self._activation_s),
            "activation_worst_s": max(self._activation_s, default=None),
        }  # fmt: skip

    def _count(self, begin_ns: int) -> None:
        """Count from now on."""
        self._sender.counts.clear()
        self._lists.count_anew()
        self._results = self._behind_ns = 0
        self._activation_s.clear()
        self._counting = True
        self._before = (time.process_time(), self._jobs.begun)
        print_event("begin", at_ns=begin_ns)

    def _settle(self) -> None:
        """Take lists until none comes any more."""
        deadline, quiet = time.monotonic() + SETTLE_S, 0
        while quiet < QUIET_S and time.monotonic() < deadline:
            before = self._lists.published
            self._take_lists(1.0)
            quiet = 0 if self._lists.published > before else quiet + 1

    def _fill(self) -> None:
        now_ns = time.time_ns()
        self._publish(self._jobs.topology(now_ns))
        self._publish(self._jobs.fill(now_ns // 1000))
        self._sender.flush()
        deadline = time.monotonic() + LISTS_TIMEOUT_S
        while self._lists.missing() or self._lists.wrong():
            self._take_lists(0.2)
            if time.monotonic() > deadline:
                missing, wrong = self._lists.missing(), self._lists.wrong()
                raise TimeoutError(f"{missing} agents have no list, {wrong} a wrong one")
        now_ns = time.time_ns()
        for agent in self._fleet.agents:
            for made in self._fleet.prepare(agent, now_ns):
                self._sender.publish(made.topic.name, made.key, made.value, made.at_ms)
            self._sender.serve()
        self._sender.flush()
        # The localizer consumes as many records and more.
        time.sleep(self.shape.rnics / SETTLED_HZ)
        print_event("filled", **self._sender.counts, jobs=len(self._jobs.running))

    def _live(self, begin_ns: int) -> int:
        """Publish in real time; return how many messages were not published at the end."""
        end_ns = begin_ns + self.shape.seconds * SECOND_NS
        lead_s, warm_s = self.shape.lead_s, self.shape.warm_s
        changes: list[tuple[float, PlannedFault | None]] = []
        for fault in self.shape.planned:
            changes += [(fault.begin_s - lead_s, fault), (fault.end_s - lead_s, None)]
        second, place = -warm_s, 0
        churned_s = told_s = -float(warm_s)
        agents = self._fleet.by_phase
        while (now_ns := time.time_ns()) < end_ns + round(OVERTIME_S * SECOND_NS):
            at_s = (now_ns - begin_ns) / SECOND_NS
            if at_s >= 0 and not self._counting:
                self._count(begin_ns)
            if churned_s + CHURN_S <= at_s <= self.shape.seconds:
                churned_s = at_s
                self._publish(self._jobs.churn(at_s + warm_s, now_ns // 1000))
            while changes and changes[0][0] <= at_s:
                at, change = changes.pop(0)
                at_ns = begin_ns + round((at + lead_s) * SECOND_NS)
                self._heal(at_ns) if change is None else self._strike(change, at_ns)
            self._take_lists(0)
            made = 0
            while second < self.shape.seconds and made < AGENTS_AT_ONCE:
                due_ns = begin_ns + second * SECOND_NS + agents[place].phase_ns
                if due_ns > now_ns:
                    break
                made += 1
                self._second(agents[place].host, due_ns, now_ns)
                place = (place + 1) % len(agents)
                second += place == 0
            self._send(now_ns)
            if at_s >= told_s + TELL_S:
                told_s = at_s
                self._progress(at_s)
            if second >= self.shape.seconds and not self._waiting:
                return 0
            time.sleep(max(0.0, SLOT_S - (time.time_ns() - now_ns) / 1e9))
        return len(self._waiting) + (self.shape.seconds - second) * len(agents) - place

    def _second(self, host: int, started_ns: int, now_ns: int) -> None:
        for made in self._fleet.second(self._fleet.agents[host], started_ns):
            if made.due_ns <= now_ns:
                self._send_one(made, now_ns)
            else:
                self._number += 1
                heapq.heappush(self._waiting, (made.due_ns, self._number, made))
        if host in self._starting and self._fleet.probing(host):
            self._activation_s.append((time.time_ns() - self._starting.pop(host)) / 1e9)

    def _send(self, now_ns: int) -> None:
        while self._waiting and self._waiting[0][0] <= now_ns:
            self._send_one(heapq.heappop(self._waiting)[2], now_ns)
        self._sender.serve()

    def _send_one(self, made: Outgoing, now_ns: int) -> None:
        self._behind_ns = max(self._behind_ns, now_ns - made.due_ns)
        self._sender.publish(made.topic.name, made.key, made.value, made.at_ms)
        self._results += made.results

    def _publish(self, recs: Iterable[Rec]) -> None:
        """Publish what the platform and starting or ending containers say."""
        changed: set[int] = set()
        for rec in recs:
            topic = BY_NAME[rec.topic]
            value = None if rec.record is None else self._codec.encode(topic, rec.record)
            self._sender.publish(topic.name, rec.key, value, rec.at_ns // 10**6)
            if topic is TASK and rec.record.ended_at is None:
                struck = any(a <= rec.at_ns <= b for a, b in self._struck_ns)
                self._begun += [rec.key] if struck else []
            if topic is not ENDPOINT:
                continue
            host = int(rec.key.removeprefix("ep:h").partition("/")[0])
            changed.add(host)
            self._fleet.registered(rec.key, here=rec.record is not None)
            if rec.record is None:
                self._starting.pop(host, None)
            else:
                self._starting[host] = rec.at_ns
        self._fleet.touched(sorted(changed))
        self._lists.touched(changed)

    def _take_lists(self, timeout_s: float) -> None:
        for seen in self._watch.poll(timeout_s):
            self._fleet.listed(seen.key, seen.record)
            self._lists.observe_list(seen.key, seen.record, len(seen.value or b""))

    def _strike(self, fault: PlannedFault, at_ns: int) -> None:
        fabric = self.shape.fabric
        if fault.what == RNIC:
            number = self._victim().hosts[0] * fabric.shape.rails + 3
            # From the outside an RNIC and its only cable are one.
            names = [fabric.names[number], fabric.names[fabric.numbers(4).start + number]]
        else:
            number = fabric.numbers(2).start + 1
            names = [fabric.names[number]]
        self._fleet.break_down(frozenset({number}), at_ns)
        self._struck_ns.append((at_ns, at_ns + round(self.shape.lasts_s * SECOND_NS)))
        print_event("fault", what=fault.what, components=names, at_ns=at_ns)

    def _heal(self, at_ns: int) -> None:
        self._fleet.break_down(frozenset(), at_ns)
        print_event("healed", at_ns=at_ns)

    def _victim(self) -> Job:
        """Return a job that is at work and will be for a while, of three hosts if there is one."""
        ready = [j for j in self._jobs.running if all(map(self._fleet.probing, j.hosts))]
        large = [j for j in ready if len(j.hosts) >= FAULT_HOSTS]
        # The last ones: the oldest end first.
        return (large or ready)[-1]

    def _progress(self, at_s: float) -> None:
        print_event(
            "going", at_s=round(at_s), results=self._results, **self._sender.counts,
            behind_s=round(self._behind_ns / 1e9, 2), waiting=len(self._waiting),
            containers=self._jobs.begun,
        )  # fmt: skip


def _middle(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def print_event(event: str, **more: Any) -> None:
    """Print an event as a line of JSON."""
    print(json.dumps({"event": event, **more}), flush=True)


def main() -> int:
    """Be this process."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.cluster.simulator")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--shape", type=ClusterShape.parse, required=True)
    options = parser.parse_args()
    table = {"cluster": CLUSTER, "topic.prefix": options.prefix}
    settings = settings_from_table(options.bootstrap, table)
    with Watch(settings, [PINGLIST], from_start=True) as watch:
        print_event("end", **Simulator(settings, options.shape, watch).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
