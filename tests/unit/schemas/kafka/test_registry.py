"""The small registry client that agents use: each id asked for once, every failure a sentence."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from schemas import avro
from schemas.codec import DecodeError
from schemas.kafka.connection import KafkaSettings
from schemas.kafka.registry import Registry, RegistryError, codec_for
from schemas.process.settings import ConfigError
from schemas.topics import FAULT_EVENT, PROBE_ROUND
from tests.unit.schemas.golden import all_goldens

OURS_ID, FOREIGN_ID, BROKEN_ID = 7, 8, 9
RECORD = next(g for g in all_goldens() if (g.topic, g.style) == (PROBE_ROUND.name, "full"))


class FakeRegistry(ThreadingHTTPServer):
    """Knows one schema of ours, one of somebody else, and one that is no schema."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.logins: set[str | None] = set()
        self.status = 200

    @property
    def url(self) -> str:
        """Root of the API."""
        return f"http://127.0.0.1:{self.server_port}/api/"


class _Handler(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        schemas = {
            OURS_ID: avro.current(PROBE_ROUND.name).text,
            FOREIGN_ID: json.dumps({"type": "record", "name": "X", "fields": []}),
            BROKEN_ID: "no schema at all",
        }
        schema = schemas.get(int(self.path.rpartition("/")[2]))
        self._answer(None if schema is None else {"schema": schema})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = body["schema"] == avro.current(PROBE_ROUND.name).text
        self._answer({"id": OURS_ID} if known else None)

    def _answer(self, content: object) -> None:
        self.server.asked.append(self.path)
        self.server.logins.add(self.headers.get("Authorization"))
        self.send_response(404 if content is None else self.server.status)
        self.end_headers()
        if content is not None:
            self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """Serve on loopback."""
    with FakeRegistry() as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.01,))
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


def test_each_id_is_asked_for_once(server: FakeRegistry) -> None:
    """Encoding and decoding a thousand records costs two requests, not two thousand."""
    codec = codec_for(KafkaSettings(bootstrap="", registry_url=server.url), bounded=False)
    value = codec.encode_datum(PROBE_ROUND, RECORD.datum)
    assert value[:5] == b"\x00\x00\x00\x00\x07"
    fresh = codec_for(KafkaSettings(bootstrap="", registry_url=server.url), bounded=False)
    for _ in range(3):
        assert codec.encode_datum(PROBE_ROUND, RECORD.datum) == value
        assert fresh.decode_datum(PROBE_ROUND, value) == RECORD.datum
    assert server.asked == ["/api/subjects/probe.round.v1-value", "/api/schemas/ids/7"]


@pytest.mark.parametrize("schema_id", [FOREIGN_ID, BROKEN_ID, 12345])
def test_id_that_is_not_ours_is_remembered(server: FakeRegistry, schema_id: int) -> None:
    """A stream of garbage becomes one request per id, and a DecodeError per record."""
    codec = codec_for(KafkaSettings(bootstrap="", registry_url=server.url), bounded=False)
    value = b"\x00" + schema_id.to_bytes(4, "big") + b"x"
    for _ in range(3):
        with pytest.raises(DecodeError, match=f"unknown schema id {schema_id}"):
            codec.decode(PROBE_ROUND, value)
    assert server.asked == [f"/api/schemas/ids/{schema_id}"]


def test_schema_that_is_not_registered_names_the_command(server: FakeRegistry) -> None:
    """The writer is told what to run."""
    with pytest.raises(RegistryError, match="skeletonhunter schemas register"):
        Registry(server.url).id_of(avro.current(FAULT_EVENT.name))


def test_login_is_sent(server: FakeRegistry) -> None:
    """User and password of the settings go along as basic authentication."""
    Registry(server.url, "me", "mine").id_of(avro.current(PROBE_ROUND.name))
    assert server.logins == {"Basic bWU6bWluZQ=="}


def test_registry_trouble_is_no_decode_error(server: FakeRegistry) -> None:
    """A registry that fails must not send good records to the dead letters."""
    codec = codec_for(KafkaSettings(bootstrap="", registry_url=server.url), bounded=False)
    server.status = 500
    with pytest.raises(RegistryError, match="HTTP 500"):
        codec.decode(PROBE_ROUND, b"\x00\x00\x00\x00\x07x")
    server.status = 200
    with pytest.raises(DecodeError):  # the id was not remembered as unknown
        codec.decode(PROBE_ROUND, b"\x00\x00\x00\x00\x07x")
    assert len(server.asked) == 2


def test_registry_that_is_away_is_a_sentence() -> None:
    """Nobody there: the URL is in the message."""
    with pytest.raises(RegistryError, match=r"http://127\.0\.0\.1:1"):
        Registry("http://127.0.0.1:1").id_of(avro.current(PROBE_ROUND.name))


def test_url_must_be_one() -> None:
    """A scheme that is no HTTP is refused at once."""
    with pytest.raises(ConfigError, match="must begin with http"):
        Registry("file:///etc/passwd")
