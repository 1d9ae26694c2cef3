"""A plan of access as commands of Kafka's own tool, as Strimzi's resources, as plain data; pure."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from ops.acl.plan import DOC, Grant, Rule

# Of Strimzi 0.49 and newer; before, `v1beta2` has the same fields.
STRIMZI_API: Final = "kafka.strimzi.io/v1"
STRIMZI_KINDS: Final = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


@dataclass(frozen=True, slots=True)
class Together:
    """Resources of a kind on which the same operations are granted, by name or by its beginning."""

    operations: tuple[str, ...]
    kind: str
    names: tuple[str, ...]
    prefixed: bool

    def __str__(self) -> str:
        star = "*" if self.prefixed else ""
        named = ", ".join(name + star for name in self.names)
        return f"{', '.join(self.operations)} of {self.kind} {named}"


def by_operations(rules: Iterable[Rule]) -> list[Together]:
    """Return resources of a kind on which the same operations are granted, together."""
    operations: dict[tuple[str, str, bool], list[str]] = {}
    for rule in sorted(rules):
        operations.setdefault((rule.kind, rule.name, rule.prefixed), []).append(rule.operation)
    together: dict[tuple[str, tuple[str, ...], bool], list[str]] = {}
    for (kind, name, prefixed), granted in operations.items():
        together.setdefault((kind, tuple(granted), prefixed), []).append(name)
    return [
        Together(granted, kind, tuple(names), prefixed)
        for (kind, granted, prefixed), names in together.items()
    ]


def commands(grants: Iterable[Grant], bootstrap: str) -> Iterator[str]:
    """Yield the lines of a shell script that grants the plan by `kafka-acls`."""
    for grant in grants:
        yield f"# {grant.role}: {DOC[grant.role]}"
        for one in by_operations(grant.rules):
            yield shlex.join(
                [
                    *("kafka-acls", "--bootstrap-server", bootstrap),
                    *("--command-config", "admin.properties", "--add"),
                    *("--allow-principal", grant.principal),
                    *(("--resource-pattern-type", "prefixed") if one.prefixed else ()),
                    *(word for o in one.operations for word in ("--operation", o)),
                    *(word for name in one.names for word in (f"--{one.kind}", name)),
                ]
            )


def strimzi(grants: Iterable[Grant], kafka: str, authentication: str) -> Iterator[str]:
    """Yield the lines of a YAML file with a `KafkaUser` for each principal.

    Parameters
    ----------
    kafka
        Name of the `Kafka` resource.
    authentication
        `scram-sha-512` or `tls`.
    """
    ordered = sorted(grants, key=lambda grant: grant.principal)
    for principal, together in groupby(ordered, key=lambda grant: grant.principal):
        roles = list(together)
        yield "---"
        yield f"# {', '.join(grant.role for grant in roles)}"
        yield f"apiVersion: {STRIMZI_API}"
        yield "kind: KafkaUser"
        yield "metadata:"
        yield f"  name: {principal.removeprefix('User:').removeprefix('CN=')}"
        yield f"  labels: {{strimzi.io/cluster: {kafka}}}"
        yield "spec:"
        yield f"  authentication: {{type: {authentication}}}"
        yield "  authorization:"
        yield "    type: simple"
        yield "    acls:"
        rules = {rule for grant in roles for rule in grant.rules}
        for one in by_operations(rules):
            pattern = "prefix" if one.prefixed else "literal"
            for name in one.names:
                resource = f"type: {STRIMZI_KINDS[one.kind]}, name: {name}, patternType: {pattern}"
                yield f"      - resource: {{{resource}}}"
                yield f"        operations: [{', '.join(one.operations)}]"


def as_data(grants: Iterable[Grant]) -> list[dict[str, Any]]:
    """Return the plan as what JSON can hold."""
    return [
        {
            "role": grant.role,
            "principal": grant.principal,
            "acls": [
                {
                    "resource": one.kind,
                    "pattern": "prefixed" if one.prefixed else "literal",
                    "name": name,
                    "operations": list(one.operations),
                }
                for one in by_operations(grant.rules)
                for name in one.names
            ],
        }
        for grant in grants
    ]
