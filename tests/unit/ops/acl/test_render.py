"""A plan as commands, as Strimzi's resources and as JSON says the same in each."""

import itertools
import json
import shlex

import yaml

from ops.acl.plan import Names, grants, principals_of_roles
from ops.acl.render import as_data, commands, strimzi

PLAN = grants(principals_of_roles(), Names(prefix="p."))
Entry = tuple[str, str, str, str, bool]


def expected() -> set[Entry]:
    """Return all that is granted: principal, kind, name, operation, prefixed."""
    return {(g.principal, r.kind, r.name, r.operation, r.prefixed) for g in PLAN for r in g.rules}


def test_commands_grant_the_plan() -> None:
    """Every option of every line, taken together, is the plan; nothing needs quoting twice."""
    found: set[Entry] = set()
    for line in commands(PLAN, "b:9092"):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[:3] == ["kafka-acls", "--bootstrap-server", "b:9092"]
        assert "--add" in words
        options = [(a, b) for a, b in itertools.pairwise(words) if a.startswith("--")]
        who = next(b for a, b in options if a == "--allow-principal")
        operations = [b for a, b in options if a == "--operation"]
        found |= {
            (who, a[2:], b, operation, ("--resource-pattern-type", "prefixed") in options)
            for a, b in options
            if a in {"--topic", "--group", "--transactional-id"}
            for operation in operations
        }
    assert found == expected()


def test_strimzi_users_are_the_plan() -> None:
    """One KafkaUser for each principal; two roles of one principal are one user."""
    text = "\n".join(strimzi(PLAN, "kafka", "scram-sha-512"))
    users = list(yaml.safe_load_all(text))
    found = {
        (
            f"User:{user['metadata']['name']}",
            {"transactionalId": "transactional-id"}.get(acl["resource"]["type"])
            or acl["resource"]["type"],
            acl["resource"]["name"],
            operation,
            acl["resource"]["patternType"] == "prefix",
        )
        for user in users
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    }
    assert found == expected()
    assert users[0]["metadata"]["labels"] == {"strimzi.io/cluster": "kafka"}
    assert users[0]["spec"]["authentication"] == {"type": "scram-sha-512"}
    both = grants({"web": "User:CN=page", "bridge": "User:CN=page"}, Names())
    (user,) = yaml.safe_load_all("\n".join(strimzi(both, "kafka", "tls")))
    assert user["metadata"]["name"] == "page"


def test_json_is_the_plan() -> None:
    """For machines."""
    found = {
        (
            entry["principal"],
            acl["resource"],
            acl["name"],
            operation,
            acl["pattern"] == "prefixed",
        )
        for entry in json.loads(json.dumps(as_data(PLAN)))
        for acl in entry["acls"]
        for operation in acl["operations"]
    }
    assert found == expected()
