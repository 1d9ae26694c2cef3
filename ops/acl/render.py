"""A plan of access as commands of Kafka's own tool, as Strimzi's resources, as plain data; pure."""

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from ops.acl.plan import DOC, Grant, Rule

# Of Strimzi 0.49 and newer; before, `v1beta2` has the same fields.
STRIMZI_API: Final = "kafka.strimzi.io/v1"
STRIMZI_KINDS: Final = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}
Resources = list[tuple[tuple[str, ...], str, list[str]]]


def by_operations(rules: Iterable[Rule]) -> Resources:
    """Return resources of a kind that are granted the same operations, together.

    Each entry: operations, kind, names.
    """
    operations: dict[tuple[str, str], list[str]] = {}
    for rule in sorted(rules):
        operations.setdefault((rule.kind, rule.name), []).append(rule.operation)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (kind, name), granted in operations.items():
        together.setdefault((kind, tuple(granted)), []).append(name)
    return [(granted, kind, names) for (kind, granted), names in together.items()]


def commands(grants: Iterable[Grant], bootstrap: str) -> Iterator[str]:
    """Yield the lines of a shell script that grants the plan by `kafka-acls`."""
    for grant in grants:
        yield f"# {grant.role}: {DOC[grant.role]}"
        for operations, kind, names in by_operations(grant.rules):
            yield shlex.join(
                [
                    *("kafka-acls", "--bootstrap-server", bootstrap),
                    *("--command-config", "admin.properties", "--add"),
                    *("--allow-principal", grant.principal),
                    *(word for o in operations for word in ("--operation", o)),
                    *(word for name in names for word in (f"--{kind}", name)),
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
        for operations, kind, names in by_operations(rules):
            for name in names:
                resource = f"type: {STRIMZI_KINDS[kind]}, name: {name}, patternType: literal"
                yield f"      - resource: {{{resource}}}"
                yield f"        operations: [{', '.join(operations)}]"


def as_data(grants: Iterable[Grant]) -> list[dict[str, Any]]:
    """Return the plan as what JSON can hold."""
    return [
        {
            "role": grant.role,
            "principal": grant.principal,
            "acls": [
                {"resource": kind, "name": name, "operations": list(operations)}
                for operations, kind, names in by_operations(grant.rules)
                for name in names
            ],
        }
        for grant in grants
    ]
