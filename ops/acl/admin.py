"""Reads a cluster's ACLs and adds what a plan lacks, by confluent-kafka's AdminClient."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import admin as _admin

from ops.acl.plan import Grant, Rule
from schemas.kafka.access import CLUSTER_REFUSED, principal
from schemas.kafka.clients import metadata
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError
from schemas.kafka.options import QUIET

REQUEST_TIMEOUT_S: Final = 30.0
# The package's annotations hide the names that it documents as public.
api: Final[Any] = _admin
KINDS: Final = {"topic": "TOPIC", "group": "GROUP", "transactional-id": "TRANSACTIONAL_ID"}
OPERATIONS: Final = {
    "Alter": "ALTER",
    "AlterConfigs": "ALTER_CONFIGS",
    "Create": "CREATE",
    "Describe": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
    "Read": "READ",
    "Write": "WRITE",
}
ANY_HOST: Final = "*"


class AclError(ConnectionError):
    """The cluster cannot be asked for its ACLs, or refuses to change them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a principal lacks of a plan, and what it has beyond it, as Kafka words it."""

    principal: str
    missing: tuple[Rule, ...]
    beyond: tuple[str, ...]


class AclAdmin:
    """Looks at a cluster's ACLs and adds some; it takes none away."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        # In a variable of its own: a temporary client is collected before its futures end.
        self._client: Any = api.AdminClient({**settings.librdkafka(), **QUIET})

    def differences(self, grants: Iterable[Grant]) -> list[Difference]:
        """Return for each principal how its ACLs differ from all that it is granted.

        Raises
        ------
        AclError
            If the cluster does not tell.
        """
        try:
            metadata(self._client, self._settings)
        except BrokerError as error:
            raise AclError(str(error)) from error
        wanted: dict[str, set[Rule]] = {}
        for grant in grants:
            wanted.setdefault(grant.principal, set()).update(grant.rules)
        found = []
        for who, rules in wanted.items():
            held = self._held(who)
            by_binding = {_binding(who, rule): rule for rule in sorted(rules)}
            found.append(
                Difference(
                    principal=who,
                    missing=tuple(r for b, r in by_binding.items() if b not in held),
                    beyond=tuple(sorted(_words(b) for b in held - set(by_binding))),
                )
            )
        return found

    def add(self, differences: Iterable[Difference]) -> int:
        """Grant what is missing; return how many ACLs were added.

        Raises
        ------
        AclError
            If the cluster refuses one; the others are there.
        """
        new = [_binding(d.principal, rule) for d in differences for rule in d.missing]
        if not new:
            return 0
        answers = self._client.create_acls(new, request_timeout=REQUEST_TIMEOUT_S)
        for future in answers.values():
            self._result(future, "add ACLs", "Alter")
        return len(new)

    def _held(self, who: str) -> set[Any]:
        asked = api.AclBindingFilter(
            api.ResourceType.ANY, None, api.ResourcePatternType.ANY, who, None,
            api.AclOperation.ANY, api.AclPermissionType.ANY,
        )  # fmt: skip
        answer = self._client.describe_acls(asked, request_timeout=REQUEST_TIMEOUT_S)
        return set(self._result(answer, "read ACLs", "Describe"))

    def _result(self, future: Any, what: str, operation: str) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == CLUSTER_REFUSED:
                raise AclError(
                    f"Kafka at {self._settings.bootstrap} refuses {principal(self._settings)}: "
                    f"{operation} of the cluster, without which nobody may {what}. Use the login "
                    "of a super user"
                ) from error
            raise AclError(f"cannot {what} at {self._settings.bootstrap}: {cause.str()}") from error


def _binding(who: str, rule: Rule) -> Any:
    return api.AclBinding(
        getattr(api.ResourceType, KINDS[rule.kind]), rule.name,
        api.ResourcePatternType.PREFIXED if rule.prefixed else api.ResourcePatternType.LITERAL,
        who, ANY_HOST, getattr(api.AclOperation, OPERATIONS[rule.operation]),
        api.AclPermissionType.ALLOW,
    )  # fmt: skip


def _words(binding: Any) -> str:
    """Return an ACL in words that say all of it."""
    return (
        f"{binding.permission_type.name} {binding.operation.name} on {binding.restype.name} "
        f"{binding.name} ({binding.resource_pattern_type.name}) from {binding.host}"
    )
