"""Looks schemas up in a registry that speaks Confluent's API.

Lookups only: `ops` registers. Standard library only, since Confluent's own
serializers cost an agent 15 MB of memory.
"""

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final

from schemas import avro
from schemas.avro import SchemaVersion
from schemas.codec import Codec
from schemas.framing import ConfluentFramer, Framer, FramingError, SingleObjectFramer
from schemas.kafka.connection import SINGLE_OBJECT, KafkaSettings
from schemas.process.errors import CannotRunError
from schemas.process.settings import ConfigError

TIMEOUT_S: Final = 10.0
# A schema of ours has some 10 KB; a larger answer is not a schema of ours.
MAX_ANSWER_BYTES: Final = 2**20
# Ids that were not found are remembered, so that a stream of garbage does not
# become a stream of requests.
MAX_UNKNOWN_IDS: Final = 1024


class RegistryError(CannotRunError):
    """The registry cannot be reached, or does not know a schema it should."""


class Registry:
    """Ids of our schemas in a registry, each looked up once."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"schema.registry.url={url!r} must begin with http:// or https://")
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if user is not None:
            pair = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        # By topic: two topics may have the same schema, and a registry then gives both one id.
        self._ids: dict[tuple[str, bytes], int] = {}
        self._schemas: dict[tuple[str, int], SchemaVersion] = {}
        self._unknown: set[tuple[str, int]] = set()

    def id_of(self, schema: SchemaVersion) -> int:
        """Return the id under which `<topic>-value` holds the schema.

        Raises
        ------
        RegistryError
            If it is not registered, or the registry cannot be reached.
        """
        name = schema.topic, schema.fingerprint
        if name not in self._ids:
            subject = f"{schema.topic}-value"
            answer = self._call(f"/subjects/{subject}", {"schema": schema.text})
            if answer is None:
                raise RegistryError(
                    f"{subject} version {schema.version} is not in the registry: run "
                    "`skeletonhunter schemas register`"
                )
            self._remember(int(answer["id"]), schema)
        return self._ids[name]

    def schema_of(self, topic: str, schema_id: int) -> SchemaVersion:
        """Return our schema with that id.

        Raises
        ------
        FramingError
            If the registry has no such id, or it names no schema of this topic.
        """
        place = topic, schema_id
        if place not in self._schemas and place not in self._unknown:
            self._find(topic, schema_id)
        found = self._schemas.get(place)
        if found is None:
            raise FramingError(f"unknown schema id {schema_id} for {topic}")
        return found

    def _find(self, topic: str, schema_id: int) -> None:
        answer = self._call(f"/schemas/ids/{schema_id}", None)
        if answer is not None:
            try:
                theirs = avro.crc64_avro(json.loads(answer["schema"]))
            except (*avro.BAD_BYTES, AttributeError):
                theirs = b""
            for version in avro.versions(topic):
                if version.fingerprint == theirs:
                    self._remember(schema_id, version)
                    return
        if len(self._unknown) < MAX_UNKNOWN_IDS:
            self._unknown.add((topic, schema_id))

    def _remember(self, schema_id: int, schema: SchemaVersion) -> None:
        self._ids.setdefault((schema.topic, schema.fingerprint), schema_id)
        self._schemas[schema.topic, schema_id] = schema

    def _call(self, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the answer; None where the registry says that there is no such thing."""
        # The scheme was checked in __init__.
        request = urllib.request.Request(  # noqa: S310
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                answer = json.loads(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise RegistryError(f"schema registry {self._url}: HTTP {error.code}") from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"schema registry {self._url}: {error}") from error
        if not isinstance(answer, dict):
            raise RegistryError(f"schema registry {self._url}: unexpected answer")
        return answer


def codec_for(settings: KafkaSettings, *, bounded: bool = True) -> Codec:
    """Return the codec that the settings ask for; `bounded` as for `Codec`."""
    if settings.registry_url is None:
        return Codec(bounded=bounded)
    registry = Registry(settings.registry_url, settings.registry_user, settings.registry_password)
    return Codec(framer_of(settings, registry), bounded=bounded)


def framer_of(settings: KafkaSettings, registry: Registry) -> Framer:
    """Return the framer that writes as the settings say, and reads both framings."""
    if settings.framing == SINGLE_OBJECT:
        return SingleObjectFramer(registry)
    return ConfluentFramer(registry)
