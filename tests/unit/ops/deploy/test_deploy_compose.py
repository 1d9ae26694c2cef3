"""The compose file and the images: whole, pinned, private, and of this program."""

import ast
import json
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml

from ops.bridge.config import build_config as bridge_config
from ops.broker.lock import APICURIO, KAFKA
from ops.topics.plan import wanted_topics
from schemas.kafka.connection import settings_from_table
from schemas.metrics.settings import parse_listen
from schemas.process.health import READY
from schemas.process.settings import read_table
from schemas.version import VERSION
from tests import ROOT
from tests.apicurio import CONFLUENT_API
from tests.unit.ops.deploy.program import runs

DEPLOY = ROOT / "ops" / "deploy"
COMPOSE = ROOT / "docker-compose.yml"


@cache
def services() -> dict[str, dict[str, Any]]:
    """Return the services, with what they share filled in."""
    content: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return content["services"]


SERVICES = sorted(services())
ONE_SHOTS = {name for name, s in services().items() if s["restart"] == "no"}
OURS = sorted(n for n, s in services().items() if s["image"].startswith("skeletonhunter:"))
COMMANDS = [name for name in OURS if "entrypoint" not in services()[name]]


def test_everything_that_the_pipeline_needs_is_there() -> None:
    """Broker, registry, the jobs, the processes, and what pages people."""
    needed = {"kafka", "registry", "topics", "schemas", "worker", "skeleton", "localizer"}
    assert needed | {"hangs", "web", "bridge", "prometheus", "alertmanager"} <= set(SERVICES)


def test_the_specification_takes_the_file() -> None:
    """Its own schema finds nothing wrong, and would."""
    schema = json.loads((ROOT / "tests/data/compose/compose-spec.json").read_text("utf-8"))
    content = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(content)
    content["services"]["web"]["helthcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="helthcheck"):
        jsonschema.Draft202012Validator(schema).validate(content)


@pytest.mark.parametrize("name", SERVICES)
def test_service_says_whether_it_is_well(name: str) -> None:
    """A service has a health check and comes back, or runs once and does not."""
    service = services()[name]
    if name in ONE_SHOTS:
        assert "healthcheck" not in service
        return
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_service_waits_for_what_it_needs(name: str) -> None:
    """It waits for the health of a service and for the end of a job, and both exist."""
    for needed, how in services()[name].get("depends_on", {}).items():
        expected = "service_completed_successfully" if needed in ONE_SHOTS else "service_healthy"
        assert how["condition"] == expected, needed


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    """Nothing of the pipeline can be reached from another machine unless someone decides so."""
    for port in services()[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_images_are_pinned_to_what_is_tested() -> None:
    """Kafka and registry have the versions of the lock files, our image that of the project."""
    assert all(re.search(r":v?[\d.]+$", service["image"]) for service in services().values())
    assert services()["kafka"]["image"] == f"apache/kafka:{KAFKA.removeprefix('kafka-')}"
    assert services()["registry"]["image"] == (
        f"apicurio/apicurio-registry:{APICURIO.removeprefix('apicurio-')}"
    )
    assert {services()[name]["image"] for name in OURS} == {f"skeletonhunter:{VERSION}"}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_exists(name: str) -> None:
    """What a service runs is a subcommand of this program."""
    assert runs(services()[name]["command"])


@pytest.mark.parametrize("name", sorted(set(OURS) - ONE_SHOTS))
def test_health_check_asks_whether_it_is_ready(name: str) -> None:
    """At the address that the mounted settings give to all processes."""
    *call, program = services()[name]["healthcheck"]["test"]
    assert call == ["CMD", "python", "-c"]
    ast.parse(program)
    place = parse_listen(read_table(DEPLOY / "skeletonhunter.toml", "metrics")["listen"])
    assert place is not None
    assert f'"http://127.0.0.1:{place[1]}{READY}"' in program


def test_the_page_gets_a_certificate_and_a_token_once(tmp_path: Path) -> None:
    """The one-shot makes them where the page reads them; a second start changes nothing."""
    service = services()["web-secrets"]
    shell, flags = service["entrypoint"]
    (script,) = service["command"]
    for _ in range(2):
        done = subprocess.run(
            [shell, flags, script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert set(made) == {"tls.crt", "tls.key", "token"}
    assert made == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    given = {word.removeprefix("web/") for word in services()["web"]["command"] if "/" in word}
    assert given == set(made)


def test_faults_reach_alertmanager_and_its_page_links_to_ours() -> None:
    """The bridge's target is the service's address; the link is the port that is published."""
    config = bridge_config({}, read_table(DEPLOY / "skeletonhunter.toml", "bridge"))
    assert [target.url for target in config.targets] == ["http://alertmanager:9093"]
    (port,) = services()["web"]["ports"]
    assert config.settings.page_url.startswith(f"https://{port.rpartition(':')[0]}/")


def test_processes_find_broker_and_registry() -> None:
    """The configuration that is mounted names the listeners that the services have."""
    for name in COMMANDS:
        source, target, mode = services()[name]["volumes"][0].split(":")
        assert (ROOT / source).is_file()
        assert mode == "ro"
        assert services()[name]["environment"]["SKELETONHUNTER_CONFIG"] == target
    table = read_table(DEPLOY / "skeletonhunter.toml", "kafka")
    settings = settings_from_table(table["bootstrap.servers"], table)
    advertised = services()["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INTERNAL://{settings.bootstrap}" in advertised.split(",")
    registry = urlsplit(str(settings.registry_url))
    assert (registry.hostname, registry.path) == ("registry", CONFLUENT_API)
    assert services()["registry"]["ports"][0].endswith(f":{registry.port}")


def test_address_told_to_this_machine_is_the_one_published() -> None:
    """A client on this machine is sent to the port that is open for it."""
    environment = services()["kafka"]["environment"]
    listeners = dict(part.split("://") for part in environment["KAFKA_LISTENERS"].split(","))
    advertised = dict(
        part.split("://") for part in environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    (published,) = services()["kafka"]["ports"]
    assert published == f"{advertised['EXTERNAL']}{listeners['EXTERNAL']}"


def test_broker_makes_no_topics_by_itself() -> None:
    """A process that is too early fails, instead of getting a topic with other settings."""
    assert services()["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert wanted_topics()


def test_image_is_built_from_the_lock_by_an_ordinary_user() -> None:
    """Every package is held to the lock's hashes, and nothing runs as root."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert "--constraint requirements.lock --build-constraint requirements.lock" in text
    assert re.search(r"uv==[\d.]+", text)
    last_stage = text[text.rindex("\nFROM") :]
    assert last_stage.index("\nUSER 10001:10001") < last_stage.index("\nENTRYPOINT")
    for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert not image.endswith(":latest")
        assert ":" in image


def test_build_context_holds_what_is_installed() -> None:
    """The ignore file lets the packages through, and they exist."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {p.removesuffix("*") for p in packages} <= let_through
    assert all((ROOT / name).exists() for name in let_through)


def has_compose() -> bool:
    """Return whether the docker client has its compose plugin; no engine is needed."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="no docker client with the compose plugin")
def test_docker_itself_takes_the_file() -> None:
    """`docker compose config` finds nothing wrong."""
    done = subprocess.run(
        ["docker", "compose", "--file", str(COMPOSE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
