"""Looks at a cluster's topics and changes them, by confluent-kafka's AdminClient."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as _admin

from ops.topics.plan import (
    Change,
    Configure,
    Create,
    FoundTopic,
    Grow,
    Options,
    Plan,
    WantedTopic,
    holds,
    plan,
    wanted_topics,
)
from schemas.kafka.access import named, refused
from schemas.kafka.clients import hidden_topics, metadata
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.errors import BrokerError

REQUEST_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
# Survives the loss of one broker while another is being restarted.
DEFAULT_REPLICAS: Final = 3
# The package's annotations hide the names that it documents as public.
api: Final[Any] = _admin


class TopicsError(ConnectionError):
    """The cluster cannot be asked, or refuses a change; the message says which."""


class TopicsRefusedError(TopicsError):
    """Topics that this principal may not see, there or not; the message says who grants it."""


class TopicAdmin:
    """Looks at a cluster's topics and changes them."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        # In a variable of its own: a temporary client is collected before its futures end.
        self._client: Any = api.AdminClient(
            {**settings.librdkafka(), "log_level": 2, "error_cb": lambda _error: None}
        )

    def _metadata(self) -> Any:
        try:
            return metadata(self._client, self._settings)
        except BrokerError as error:
            raise TopicsError(str(error)) from error

    def brokers(self) -> int:
        """Return how many brokers the cluster has."""
        return len(self._metadata().brokers)

    def found(self, names: Iterable[str]) -> dict[str, FoundTopic]:
        """Return those of the topics that exist, with their settings.

        Raises
        ------
        TopicsRefusedError
            If some may not be seen: they are not missing for that.
        """
        asked = set(names)
        metadata = self._metadata().topics
        there = [name for name in metadata if name in asked]
        if asked > set(there):
            self._check_hidden(asked - set(there))
        if not there:
            return {}
        resources = [api.ConfigResource(api.ResourceType.TOPIC, name) for name in there]
        futures = self._client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        configs = {r.name: _result(f, f"describe {r.name}") for r, f in futures.items()}
        return {
            name: FoundTopic(
                name=name,
                partitions=len(metadata[name].partitions),
                replication_factor=min(
                    (len(p.replicas) for p in metadata[name].partitions.values()), default=0
                ),
                config={k: str(entry.value) for k, entry in configs[name].items()},
            )
            for name in there
        }

    def _check_hidden(self, names: Collection[str]) -> None:
        try:
            hidden = hidden_topics(self._settings, names)
        except BrokerError as error:
            raise TopicsError(str(error)) from error
        if hidden:
            access = refused(self._settings, f"Describe of {named('topic', hidden)}")
            raise TopicsRefusedError(str(access))

    def apply(self, changes: Sequence[Change], replication_factor: int | None = None) -> None:
        """Make the changes; what another process has just made as well is no error.

        `replication_factor` None: 3, or as many as there are brokers.

        Raises
        ------
        TopicsError
            At the first change that the cluster refuses; the others are made.
        """
        errors = [
            *self._create([c.topic for c in changes if isinstance(c, Create)], replication_factor),
            # The registry lists a topic before those that are computed from it, partition by
            # partition; backwards, no writer finds its outputs smaller than its input.
            *self._grow([c for c in reversed(changes) if isinstance(c, Grow)]),
            *self._configure([c for c in changes if isinstance(c, Configure)]),
        ]
        if errors:
            raise errors[0]
        self._wait_until_known(changes)

    def _wait_until_known(self, changes: Sequence[Change]) -> None:
        """Return when the brokers show the changes: they learn of them after the controller."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        names = [c.topic.name if isinstance(c, Create) else c.name for c in changes]
        while True:
            found = self.found(names)
            if all(holds(change, found) for change in changes):
                return
            if time.monotonic() > deadline:
                raise TopicsError(
                    f"{self._settings.bootstrap} took the changes, but does not show them"
                )
            time.sleep(POLL_S)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics; those that are not there are no error."""
        if names:
            futures = self._client.delete_topics(list(names), request_timeout=REQUEST_TIMEOUT_S)
            for error in _errors(futures, "delete", KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise error

    def _create(
        self, topics: Sequence[WantedTopic], replication_factor: int | None
    ) -> list[TopicsError]:
        if not topics:
            return []
        replicas = replication_factor or min(DEFAULT_REPLICAS, self.brokers())
        new = [api.NewTopic(t.name, t.partitions, replicas, config=dict(t.config)) for t in topics]
        futures = self._client.create_topics(new, request_timeout=REQUEST_TIMEOUT_S)
        return _errors(futures, "create", KafkaError.TOPIC_ALREADY_EXISTS)

    def _grow(self, changes: Sequence[Grow]) -> list[TopicsError]:
        errors = []
        for change in changes:
            futures = self._client.create_partitions(
                [api.NewPartitions(change.name, change.wanted)], request_timeout=REQUEST_TIMEOUT_S
            )
            errors += _errors(futures, "grow", None)
        return errors

    def _configure(self, changes: Sequence[Configure]) -> list[TopicsError]:
        if not changes:
            return []
        resources = [
            api.ConfigResource(
                api.ResourceType.TOPIC,
                c.name,
                incremental_configs=[
                    api.ConfigEntry(k, v, incremental_operation=api.AlterConfigOpType.SET)
                    for k, v in c.wanted.items()
                ],
            )
            for c in changes
        ]
        futures = self._client.incremental_alter_configs(
            resources, request_timeout=REQUEST_TIMEOUT_S
        )
        return _errors({r.name: f for r, f in futures.items()}, "configure", None)


def apply_topics(settings: KafkaSettings, options: Options | None = None) -> Plan:
    """Bring all topics of the settings' prefix to the registry's state; return what was planned."""
    options = options or Options()
    admin = TopicAdmin(settings)
    wanted = wanted_topics(settings.topic_prefix, options)
    found_plan = plan(wanted, admin.found(t.name for t in wanted))
    admin.apply(found_plan.changes, options.replication_factor)
    return found_plan


def _errors(futures: Mapping[str, Any], verb: str, harmless_code: int | None) -> list[TopicsError]:
    errors = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != harmless_code:
                errors.append(TopicsError(f"cannot {verb} {name}: {error.args[0].str()}"))
    return errors


def _result(future: Any, what: str) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise TopicsError(f"cannot {what}: {error.args[0].str()}") from error
