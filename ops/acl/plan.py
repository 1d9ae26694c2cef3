"""The access that each principal needs, from the topic registry; pure. `ops.acl.admin` applies it.

Read and Write imply Describe for Kafka's own authorizer, so that it is named only where it stands
alone. Write on a topic also allows the idempotent producer (Kafka 2.8 and newer, KIP-679).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas import topics as t
from schemas.kafka.options import READER_GROUP, group_name
from schemas.topics import TOPICS, Topic
from streams.config import WorkerConfig

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"
READ, WRITE, DESCRIBE = "Read", "Write", "Describe"

# Roles by name as in `--for`, with the name that the registry has for the process.
PROCESSES: Final = {
    "agent": t.AGENT,
    "worker": t.WORKER,
    "skeleton": t.SKELETON,
    "localizer": t.LOCALIZER,
    "collector": t.JOB_COLLECTOR,
    "hangs": t.HANG_WATCHER,
}
# Who writes what the platform knows: the scheduler of jobs, the inventory of the network, readers
# of switches and other components; and people who respond to faults.
WRITERS: Final = {
    "scheduler": t.SCHEDULER,
    "inventory": t.INVENTORY,
    "states": t.COLLECTOR,
    "responder": t.OPS,
}
DOC: Final = {
    "agent": "probes on each host; one principal for all of them, or one each",
    "worker": "windows and anomalies",
    "skeleton": "traffic skeletons and ping lists",
    "localizer": "verdicts",
    "collector": "reads what training jobs recorded, on each host",
    "hangs": "says why a training job hangs",
    "scheduler": "submits and ends jobs: `task submit`, `task end`",
    "inventory": "publishes the topology and flow tables",
    "states": "publishes states of components",
    "web": "the operator's page",
    "bridge": "passes verdicts on to alert routers, and commits how far it is",
    "reader": "people and tools that look on: `tail`, `record`, `doctor`",
    "responder": "people who silence faults and write notes to them; with `web` a page that acts",
    "operator": "`topics plan` and `topics apply`",
}
ROLES: Final = tuple(DOC)
# What a bridge to alert routers needs: verdicts, and whether somebody wants to be paged.
PAGED: Final = (t.FAULT_EVENT, t.SILENCE, t.INCIDENT_NOTE)
# `ROLE` stands for the role.
DEFAULT_PRINCIPAL: Final = "User:skeletonhunter-ROLE"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Rule:
    """One operation that is allowed on one resource, or on all whose names begin so."""

    kind: str
    name: str
    operation: str
    prefixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a principal may do, in one role."""

    role: str
    principal: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What resources are called on this cluster.

    Attributes
    ----------
    prefix, cluster
        `topic.prefix` and `cluster` of the `[kafka]` table.
    worker_group
        `group` of the `[worker]` table.
    """

    prefix: str = ""
    cluster: str = "default"
    worker_group: str = WorkerConfig().group

    @property
    def groups(self) -> dict[str, str]:
        """Groups of which processes are members, by role."""
        return {"worker": self.prefix + self.worker_group} | {
            role: self._of_role(role) for role in ("skeleton", "localizer", "hangs", "bridge")
        }

    @property
    def transactional_ids(self) -> dict[str, str]:
        """Transactional ids by role: who begins to lead fences by it who led before."""
        return {role: self._of_role(role) for role in ("skeleton", "localizer", "hangs")}

    @property
    def bridge_groups(self) -> str:
        """What the groups of a bridge begin with: each target has one, and its name at the end."""
        return f"{self._of_role('bridge')}-"

    @property
    def reader_group(self) -> str:
        """Name under which all read who join no group; librdkafka looks for its coordinator."""
        return self.prefix + READER_GROUP

    def _of_role(self, role: str) -> str:
        return group_name(self.prefix, self.cluster, role)


def grants(principals: Mapping[str, str], names: Names) -> tuple[Grant, ...]:
    """Return what each of the roles needs, by its principal.

    Raises
    ------
    KeyError
        If there is no such role.
    """
    return tuple(
        Grant(role=role, principal=who, rules=tuple(sorted(set(_rules(role, names)))))
        for role, who in principals.items()
    )


def principals_of_roles(pattern: str = DEFAULT_PRINCIPAL) -> dict[str, str]:
    """Return a principal for each role, by a pattern in which `ROLE` stands for it."""
    return {role: principal_of(role, pattern) for role in ROLES}


def principal_of(role: str, pattern: str) -> str:
    """Return the principal of a role by a pattern.

    >>> principal_of("worker", DEFAULT_PRINCIPAL)
    'User:skeletonhunter-worker'
    """
    return pattern.replace("ROLE", role)


def _rules(role: str, names: Names) -> Iterable[Rule]:
    if role not in ROLES:
        raise KeyError(f"no role {role!r}; there are {', '.join(ROLES)}")
    yield from (
        Rule(kind=TOPIC, name=names.prefix + name, operation=operation)
        for name, operation in _topics(role)
    )
    if role in names.groups:
        yield Rule(kind=GROUP, name=names.groups[role], operation=READ)
    if role == "bridge":
        yield Rule(kind=GROUP, name=names.bridge_groups, operation=READ, prefixed=True)
    if role in names.transactional_ids:
        for operation in (DESCRIBE, WRITE):
            own = names.transactional_ids[role]
            yield Rule(kind=TRANSACTIONAL_ID, name=own, operation=operation)
    if role in {"reader", "web"}:
        # How far they are.
        for group in names.groups.values():
            yield Rule(kind=GROUP, name=group, operation=DESCRIBE)
    if role not in {"states", "inventory", "operator"}:
        yield Rule(kind=GROUP, name=names.reader_group, operation=DESCRIBE)


def _topics(role: str) -> Iterable[tuple[str, str]]:
    if role in PROCESSES:
        yield from _topics_of(PROCESSES[role])
    if role in WRITERS:
        yield from ((topic.name, WRITE) for topic in TOPICS if WRITERS[role] in topic.producers)
    if role == "scheduler":
        # `task end` writes the record again, with the time of its end.
        yield t.TASK.name, READ
    if role == "bridge":
        for topic in PAGED:
            yield topic.name, READ
            yield topic.dlq, WRITE
    if role == "responder":
        # Whoever ends a silence writes it again; a note names a fault.
        yield from ((topic.name, READ) for topic in (*PAGED, t.FAULT_STATE))
    if role in {"reader", "web"}:
        for topic in TOPICS:
            yield from ((name, READ) for name in (topic.name, topic.dlq))
    if role == "reader":
        # `doctor` compares their settings with the contract.
        yield from ((name, "DescribeConfigs") for name in _all_names())
    if role == "operator":
        for name in _all_names():
            yield from (
                (name, operation)
                for operation in ("Alter", "AlterConfigs", "Create", DESCRIBE, "DescribeConfigs")
            )


def _all_names() -> Iterable[str]:
    for topic in TOPICS:
        yield from (topic.name, topic.dlq)


def _topics_of(process: str) -> Iterable[tuple[str, str]]:
    for topic in TOPICS:
        if process in topic.producers:
            yield topic.name, WRITE
        if _reads(process, topic):
            yield topic.name, READ
            # What a reader cannot use it keeps there.
            yield topic.dlq, WRITE


def _reads(process: str, topic: Topic) -> bool:
    return process in topic.consumers or (topic.read_back and process in topic.producers)
