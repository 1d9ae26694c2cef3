"""Registers the contract's schemas, and checks them against what a registry holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas import avro
from schemas.avro import SchemaVersion
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import RegistryError

LEVEL: Final = "FULL_TRANSITIVE"
NOT_FOUND: Final = 404
TIMEOUT_S: Final = 10
RETRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectState:
    """How a topic's schemas stand in the registry.

    `level` is None where the subject is not there; `ids` holds the id of each of our
    versions, None where it is not registered; `faults` is empty where nothing
    stands against registering.
    """

    topic: str
    level: str | None
    ids: dict[int, int | None]
    faults: tuple[str, ...] = ()

    @property
    def registered(self) -> bool:
        """Whether the registry has all versions, under the right level."""
        return self.level == LEVEL and None not in self.ids.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What registering a topic's schemas came to: ids by version, and what was new."""

    topic: str
    ids: dict[int, int] = field(default_factory=dict)
    new: tuple[int, ...] = ()


class RegistryAdmin:
    """A registry that speaks Confluent's API; every method raises RegistryError."""

    def __init__(self, settings: KafkaSettings) -> None:
        if settings.registry_url is None:
            raise RegistryError("no schema registry: give --registry URL or schema.registry.url")
        conf: dict[str, Any] = {
            "url": settings.registry_url,
            "timeout": TIMEOUT_S,
            "max.retries": RETRIES,
        }
        if settings.registry_user is not None:
            login = f"{settings.registry_user}:{settings.registry_password or ''}"
            conf["basic.auth.user.info"] = login
        self._url = settings.registry_url
        with self._translated("is not usable"):
            self._client = SchemaRegistryClient(conf)

    def state(self, topic: str) -> SubjectState:
        """Compare our versions of a topic's schema with the registry's."""
        subject = subject_of(topic)
        level = self._level(subject)
        ids = {v.version: self._id_of(subject, v) for v in avro.versions(topic)}
        faults: list[str] = []
        if level not in {None, LEVEL}:
            faults.append(f"{subject}: compatibility is {level}, not {LEVEL}")
        if level is not None:
            faults += [
                f"{subject}: version {v.version} is incompatible with what is registered"
                for v in avro.versions(topic)
                if ids[v.version] is None and not self._fits(subject, v)
            ]
        return SubjectState(topic=topic, level=level, ids=ids, faults=tuple(faults))

    def register(self, topic: str) -> Registered:
        """Set the level, then register all versions in order; what is there stays as it is.

        Raises
        ------
        RegistryError
            If the registry refuses a version; the earlier ones are registered.
        """
        subject = subject_of(topic)
        if self._level(subject) != LEVEL:
            with self._translated(f"refuses {LEVEL} for {subject}"):
                self._client.set_compatibility(subject, LEVEL)
        ids: dict[int, int] = {}
        new: list[int] = []
        for version in avro.versions(topic):
            known = self._id_of(subject, version)
            if known is None:
                with self._translated(f"refuses {subject} version {version.version}"):
                    known = self._client.register_schema(subject, as_schema(version))
                new.append(version.version)
            ids[version.version] = known
        return Registered(topic=topic, ids=ids, new=tuple(new))

    def _level(self, subject: str) -> str | None:
        with self._translated(f"does not tell the compatibility of {subject}"):
            try:
                return str(self._client.get_compatibility(subject))
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return None

    def _id_of(self, subject: str, version: SchemaVersion) -> int | None:
        with self._translated(f"does not look {subject} up"):
            try:
                found = self._client.lookup_schema(subject, as_schema(version))
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return None
            return found.schema_id

    def _fits(self, subject: str, version: SchemaVersion) -> bool:
        with self._translated(f"does not check {subject}"):
            try:
                return bool(
                    self._client.test_compatibility_all_versions(subject, as_schema(version))
                )
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return True  # a level was set, but nothing registered yet

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (SchemaRegistryError, httpx2.HTTPError, ValueError) as error:
            raise RegistryError(f"schema registry {self._url} {what}: {error}") from error


def subject_of(topic: str) -> str:
    """Return the subject of a topic's values, as Confluent's clients name it."""
    return f"{topic}-value"


def as_schema(version: SchemaVersion) -> Schema:
    """Return a version as Confluent's client takes it."""
    return Schema(version.text, "AVRO")
