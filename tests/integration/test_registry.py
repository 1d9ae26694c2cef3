"""Our schemas, framing and rules against a real registry that speaks Confluent's API."""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import typer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner

from ops.broker.errors import OfflineError
from ops.cli import schemas as schemas_cli
from ops.topics.schema_registry import LEVEL, RegistryAdmin, subject_of
from schemas import avro
from schemas.codec import Codec, DecodeError, to_datum
from schemas.evolution import cannot_read
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import Registry, RegistryError, codec_for
from schemas.topics import FAULT_EVENT, FAULT_STATE, PROBE_ROUND, TOPICS, Topic
from tests.apicurio import EmbeddedRegistry
from tests.unit.schemas.golden import all_goldens

pytestmark = pytest.mark.registry
GOLDENS = {(g.topic, g.style): g for g in all_goldens() if g.schema == avro.current(g.topic)}


@pytest.fixture(scope="module")
def empty_registry() -> Iterator[EmbeddedRegistry]:
    """Run a registry; leave the tests out only where its 158 MB cannot be had."""
    registry = EmbeddedRegistry()
    try:
        registry.start()
    except OfflineError as error:
        pytest.skip(f"the registry cannot be downloaded: {error}")
    with registry:
        yield registry


@pytest.fixture(scope="module")
def settings(empty_registry: EmbeddedRegistry) -> KafkaSettings:
    """Return settings that name the registry, with all schemas registered."""
    settings = KafkaSettings(bootstrap="", registry_url=empty_registry.url)
    admin = RegistryAdmin(settings)
    for topic in TOPICS:
        admin.register(topic.name)
    return settings


def client(settings: KafkaSettings) -> SchemaRegistryClient:
    """Return Confluent's own client."""
    return SchemaRegistryClient({"url": str(settings.registry_url)})


def golden_record(topic: Topic, style: str = "full") -> Any:
    """Return a record of the topic."""
    return Codec(bounded=False).decode(topic, GOLDENS[topic.name, style].framed)


def run(*arguments: str) -> tuple[int, str]:
    """Run `schemas ...` and return exit code and output."""
    app = typer.Typer()
    schemas_cli.register(app)
    result = CliRunner().invoke(app, ["schemas", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_check_and_register_by_command(empty_registry: EmbeddedRegistry) -> None:
    """`check` names what is missing, `register` registers it once, then `check` finds all there."""
    where = ("--registry", empty_registry.url)
    code, output = run("check", *where)
    assert (code, "not registered yet: probe.round.v1" in output) == (0, True)

    code, output = run("register", *where)
    assert code == 0
    assert output.count("(new)") == sum(len(avro.versions(t.name)) for t in TOPICS)
    code, again = run("register", *where, "--json")
    assert code == 0
    assert all(row["new"] == [] for row in json.loads(again))

    code, output = run("check", *where)
    assert (code, "all are registered" in output) == (0, True)


def test_every_subject_is_full_transitive(settings: KafkaSettings) -> None:
    """The registry itself enforces the rule from now on, for every topic."""
    theirs = client(settings)
    levels = {t.name: theirs.get_compatibility(subject_of(t.name)) for t in TOPICS}
    assert set(levels.values()) == {LEVEL}


BAD_CHANGES: dict[str, Any] = {
    "field without default added": lambda fields: [
        *fields, {"name": "extra", "type": "long", "doc": "Something new"},
    ],
    "field without default removed": lambda fields: fields[1:],
    "type changed": lambda fields: [{**fields[0], "type": "long"}, *fields[1:]],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CHANGES)
def test_incompatible_change_is_refused(settings: KafkaSettings, name: str) -> None:
    """The registry answers 409 to a change that our own checker refuses as well."""
    ours = json.loads(avro.current(PROBE_ROUND.name).text)
    schema = {**ours, "fields": BAD_CHANGES[name](ours["fields"])}
    assert cannot_read(ours, schema) + cannot_read(schema, ours)
    with pytest.raises(SchemaRegistryError) as caught:
        client(settings).register_schema(
            subject_of(PROBE_ROUND.name), Schema(json.dumps(schema), "AVRO")
        )
    assert caught.value.http_status_code == 409


def test_good_change_would_be_accepted(settings: KafkaSettings) -> None:
    """A nullable field may come: the registry says so, and so does our own checker."""
    ours = json.loads(avro.current(FAULT_STATE.name).text)
    extra = {"name": "extra", "type": ["null", "long"], "default": None, "doc": "Something new"}
    schema = {**ours, "fields": [*ours["fields"], extra]}
    assert cannot_read(ours, schema) + cannot_read(schema, ours) == []
    theirs = client(settings)
    subject = subject_of(FAULT_STATE.name)
    assert theirs.test_compatibility_all_versions(subject, Schema(json.dumps(schema), "AVRO"))


@pytest.mark.parametrize("style", ["sparse", "full", "extreme"])
@pytest.mark.parametrize("topic", TOPICS, ids=lambda t: t.name)
def test_round_trip_in_confluents_framing(
    settings: KafkaSettings, topic: Topic, style: str
) -> None:
    """The codec that the settings ask for writes magic byte and id, and reads its own bytes."""
    # Golden records have extreme values, which every field's type allows.
    codec = codec_for(settings, bounded=False)
    record = golden_record(topic, style)
    value = codec.encode(topic, record)
    magic, schema_id = struct.unpack(">bI", value[:5])
    assert magic == 0
    assert json.loads(str(client(settings).get_schema(schema_id).schema_str))["name"]
    assert codec_for(settings, bounded=False).decode(topic, value) == record


def test_confluents_deserializer_reads_our_bytes(settings: KafkaSettings) -> None:
    """A reader that knows nothing of us, with the standard client, gets every field."""
    record = golden_record(FAULT_EVENT)
    value = codec_for(settings).encode(FAULT_EVENT, record)
    context = SerializationContext(FAULT_EVENT.name, MessageField.VALUE)
    read = AvroDeserializer(client(settings))(value, context)
    assert isinstance(read, dict)
    assert read["fault_id"] == record.fault_id
    assert read["candidates"] == to_datum(record)["candidates"]
    assert int(read["event_at"].timestamp() * 1_000_000) == record.event_at


def test_we_read_confluents_bytes(settings: KafkaSettings) -> None:
    """What the standard client writes under the registered schema is read by our codec."""
    record = golden_record(FAULT_EVENT)
    serializer = AvroSerializer(
        client(settings),
        avro.current(FAULT_EVENT.name).text,
        conf={"auto.register.schemas": False},
    )
    context = SerializationContext(FAULT_EVENT.name, MessageField.VALUE)
    value = serializer(to_datum(record), context)
    assert value is not None
    assert codec_for(settings).decode(FAULT_EVENT, value) == record


def test_unknown_and_foreign_ids_are_decode_errors(settings: KafkaSettings) -> None:
    """An id that the registry lacks, and one of another topic, name topic, partition and offset."""
    codec = codec_for(settings)
    for schema_id in (999_999_999, None):
        value = codec.encode(FAULT_EVENT, golden_record(FAULT_EVENT))
        if schema_id is not None:
            value = struct.pack(">bI", 0, schema_id) + value[5:]
        topic = FAULT_EVENT if schema_id is not None else PROBE_ROUND
        with pytest.raises(DecodeError, match="unknown schema id") as caught:
            codec.decode(topic, value, partition=3, offset=17)
        assert str(caught.value).startswith(f"{topic.name}[3]@17: ")


def test_schema_that_is_not_registered_is_a_sentence(empty_registry: EmbeddedRegistry) -> None:
    """Writing before `schemas register` says which command is missing."""
    version = replace(avro.current(PROBE_ROUND.name), topic="other.v1", fingerprint=b"12345678")
    with pytest.raises(RegistryError, match="skeletonhunter schemas register"):
        Registry(empty_registry.url).id_of(version)


def test_registry_that_is_away_is_a_sentence() -> None:
    """A registry that does not answer is named, without a traceback of the HTTP client."""
    settings = KafkaSettings(bootstrap="", registry_url="http://127.0.0.1:1")
    with pytest.raises(RegistryError, match=r"http://127\.0\.0\.1:1"):
        RegistryAdmin(settings).state(PROBE_ROUND.name)
