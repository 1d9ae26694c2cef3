"""Bridges that lead are killed in a storm of transitions, while targets fail half of the time."""

import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ops.bench.operator import cluster
from ops.bench.operator.cluster import CLUSTER
from ops.bench.operator.receivers import Receiver, receiving
from ops.bench.operator.site import Writer
from ops.bench.rig.pair import Pair
from ops.bench.rig.report import Figure, Parts, Say, figure, scratch_folder
from ops.bench.rig.waiting import wait_until
from ops.broker.embedded import EmbeddedKafka
from ops.running.pipeline import to_toml
from ops.running.processes import ProcessGroup
from ops.topics.admin import apply_topics
from ops.topics.plan import Options
from schemas import topics as t
from schemas.enums import FaultLifecycle
from schemas.kafka.connection import KafkaSettings
from schemas.records import FaultEvent
from schemas.units import MS_NS, US_PER_MS

KILLS: Final = 50
FAULTS: Final = 100
TRANSITIONS: Final = 2_000
FAILING: Final = 0.5
SEED: Final = 20_263
# The bar for a take-over; six seconds of it are the session of the one that was killed.
TAKE_OVER_S: Final = 10.0
# How long a bridge works before it is killed.
WORKS_S: Final = (0.1, 1.5)
# Webhooks are told one thing after the other, each twice on average.
DRAIN_S: Final = 600.0
HOLD_S: Final = 5


def bridge(runs: int, say: Say) -> list[Figure]:
    """Kill so many bridges that lead; compare what the receivers took with the transitions."""
    chance = random.Random(SEED)  # noqa: S311 - a schedule needs no secrecy
    names = [f"f-{n}" for n in range(FAULTS)]
    seqs = Counter[str]()
    took_s: list[float] = []
    with (
        scratch_folder() as folder,
        EmbeddedKafka(announce=False) as kafka,
        receiving(Receiver(failing=FAILING)) as alerts,
        receiving(Receiver(failing=FAILING)) as hook,
        ProcessGroup(folder / "logs") as group,
    ):
        settings = KafkaSettings(bootstrap=kafka.bootstrap, cluster=CLUSTER)
        apply_topics(settings, Options())
        writer = Writer(settings)
        command = bridge_command(
            folder, settings, {"alertmanager": alerts.url, "webhook": hook.url}
        )
        pair = Pair("bridge", lambda name: group.start(name, command))

        def tell(chosen: list[str], state: FaultLifecycle) -> None:
            events = [_transition(name, seqs, state) for name in chosen]
            writer.write((t.FAULT_EVENT, event.fault_id, event) for event in events)

        # All open at first, and all end at last.
        tell(names, FaultLifecycle.OPEN)
        between = TRANSITIONS - 2 * FAULTS
        for kill in range(runs):
            size = between * (kill + 1) // runs - between * kill // runs
            tell(chance.choices(names, k=size), FaultLifecycle.UPDATED)
            time.sleep(chance.uniform(*WORKS_S))
            took_s.append(pair.kill()())
            say(f"kill {kill + 1}: another one leads after {took_s[-1]:.1f} s")
        tell(names, FaultLifecycle.RESOLVED)
        wanted = {f"{name}/{seq}" for name in names for seq in range(1, seqs[name] + 1)}
        try:
            wait_until(
                lambda: wanted <= {post.json["id"] for post in list(hook.posts)}
                and all(_told(alerts)[name][-1:] == [False] for name in names),
                DRAIN_S, "not all was told", poll_s=1.0,
            )  # fmt: skip
        except TimeoutError:
            say("not all was told")
        taken = Counter(post.json["id"] for post in hook.posts)
        told = _told(alerts)
    what = f"bridge killed {runs} times in {sum(seqs.values()):,} transitions, targets fail half"
    wrong = [name for name in names if told[name] != [True, False]]
    return [
        figure(f"{what}: faults not paged once and resolved once", [len(wrong)], "", 0),
        figure("… transitions that a webhook never got", [len(wanted - taken.keys())], "", 0),
        figure("… transitions that a webhook got, and that nobody wrote",
               [len(taken.keys() - wanted)], "", 0),
        figure("… how often a webhook took each; 1.5 times for the answers that it did not give",
               [taken.total() / len(wanted)], ""),
        figure("… until another one leads, median", took_s, "s"),
        figure("… until another one leads, worst", took_s, "s", TAKE_OVER_S, worst=True),
    ]  # fmt: skip


def bridge_command(folder: Path, settings: KafkaSettings, targets: Mapping[str, str]) -> list[str]:
    """Return the command of a bridge that tells targets, given as addresses by type."""
    path = folder / "bridge.toml"
    tables: dict[str, dict[str, str | int]] = {
        "kafka": {"bootstrap.servers": settings.bootstrap, "cluster": CLUSTER},
        "bridge": {"resolve_hold_s": HOLD_S, "resend_s": 20, "storm_faults": 10 * FAULTS},
    }
    path.write_text(
        to_toml(tables)
        + "".join(
            f'\n[[bridge.target]]\ntype = "{kind}"\nurl = {json.dumps(url)}\n'
            for kind, url in targets.items()
        ),
        encoding="utf-8",
    )
    return [sys.executable, "-m", "ops.bridge", "--config", str(path), "--log-json"]


def _transition(name: str, seqs: Counter[str], state: FaultLifecycle) -> FaultEvent:
    """Return the next transition of a fault."""
    seqs[name] += 1
    at_ms = time.time_ns() // MS_NS
    event = cluster.fault(int(name.removeprefix("f-")), at_ms, seq=seqs[name])
    over_us = at_ms * US_PER_MS if state is FaultLifecycle.RESOLVED else None
    return replace(event, state=state, resolved_at=over_us)


def _told(alerts: Receiver) -> dict[str, list[bool]]:
    """Return of each fault whether its page was told to be open, each change once."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for post in sorted(alerts.posts, key=lambda post: post.at_s):
        now = datetime.fromtimestamp(post.at_s, UTC).isoformat()
        for alert in post.json:
            states = found[alert["labels"]["fault_id"]]
            is_open = alert["endsAt"] > now
            if states[-1:] != [is_open]:
                states.append(is_open)
    return found


PARTS: Final[Parts] = {"bridge": bridge}
