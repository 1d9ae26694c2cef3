"""The agent's image: what it holds is enough, and is pinned."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ops.deploy.extensions import compile_extensions
from tests import ROOT

DEPLOY = ROOT / "ops" / "deploy"
DOCKERFILE = (DEPLOY / "agent.Dockerfile").read_text(encoding="utf-8")
REQUIREMENTS = (DEPLOY / "agent.requirements.txt").read_text(encoding="utf-8")
# A process with its clients, whose broker is away; what it has loaded from outside.
SCRIPT = """
import json, os, sys
from probers import memory
memory.hide_unneeded_modules()
import probers.cli, probers.health.server, probers.overlay.watch, probers.transports.rdma.library
import schemas.kafka.registry
from probers.agent import Agent
from probers.clock import SystemClock
from probers.config.settings import build_config
from schemas.kafka.connection import KafkaSettings

config = build_config({}, {}, {"host_id": "h0", "rnic": [{"rail": 0, "address": "127.0.0.1"}]})
settings = KafkaSettings(bootstrap="127.0.0.1:1")
agent = Agent(config, settings, probers.cli.make_codec(settings, probers.cli.AGENT), SystemClock())
agent._sleep()
agent._work()
# Cython's own entries there are no modules of anybody's.
tops = {name.partition(".")[0] for name, m in sys.modules.items() if getattr(m, "__spec__", None)}
print(json.dumps(sorted(tops - sys.stdlib_module_names - {"__main__", "probers", "schemas"})))
sys.stdout.flush()
os._exit(0)
"""


def pinned(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return version and hashes of each package of a list that pip reads."""
    found = {}
    for entry in re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)):
        name, equals, version = entry.split(" ", 1)[0].strip().partition("==")
        if equals:
            hashes = frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})", entry))
            found[name] = (version, hashes)
    return found


def importable(requirement: str) -> str:
    """Return the name that a package of the list is imported by."""
    return requirement.replace("-", "_")


def only(folder: Path, names: list[str]) -> dict[str, str]:
    """Return an environment in which Python finds nothing but itself, the rooms and those."""
    for name in ("probers", "schemas"):
        (folder / name).symlink_to(ROOT / name)
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        for part in package.parent.glob(f"{name}*"):
            (folder / part.name).symlink_to(part)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_the_list_is_the_locks() -> None:
    """Same versions, same hashes; each has some."""
    lock = pinned((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    found = pinned(REQUIREMENTS)
    assert found
    assert all(hashes for _, hashes in found.values())
    assert found == {name: lock[name] for name in found}


def test_the_list_is_what_an_agent_imports(tmp_path: Path) -> None:
    """An agent runs with it and nothing else (-S: no site-packages), and loads all of it."""
    names = [importable(name) for name in pinned(REQUIREMENTS)]
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", SCRIPT],
        env=only(tmp_path, names), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == sorted(names)


def test_the_command_starts_with_it(tmp_path: Path) -> None:
    """As the entry point calls it, from any folder."""
    environment = only(tmp_path, [importable(name) for name in pinned(REQUIREMENTS)])
    for command in ("probers", "probers health"):
        done = subprocess.run(
            [sys.executable, "-S", "-P", "-m", *command.split(), "--help"],
            env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "usage: skeletonhunter agent" in done.stdout


def test_the_image_is_pinned_and_runs_as_a_number() -> None:
    """Kubernetes can tell that a number is not root; packages are held to their hashes."""
    for image in re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE):
        assert re.fullmatch(r"[a-z]+:[a-z0-9.-]+", image)
        assert not image.endswith(":latest")
    assert "--require-hashes --requirement /tmp/agent.requirements.txt" in DOCKERFILE
    last_stage = DOCKERFILE[DOCKERFILE.rindex("\nFROM") :]
    assert "python3-pyverbs" in last_stage
    assert last_stage.index("\nUSER 10001:10001") < last_stage.index("\nENTRYPOINT")
    assert 'ENTRYPOINT ["python3", "-P", "-m", "probers"]' in last_stage
    assert set(re.findall(r"^COPY (?!--)(\S+)", DOCKERFILE, re.MULTILINE)) == {
        "ops/deploy/agent.requirements.txt",
        "pyproject.toml",
        "schemas",
        "probers",
    }


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler here")
def test_the_image_compiles_what_pyproject_names(tmp_path: Path) -> None:
    """By its flags, in place; of the sources only those of NCCL's plugin are in the image."""
    for name in ("probers", "schemas"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    compiled = compile_extensions(ROOT / "pyproject.toml", tmp_path)
    assert compiled == ["probers.transports._datagrams", "schemas._record_writer"]
    script = f"import {', '.join(compiled)} as last; print(last.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / "schemas" / "_record_writer.so"), done.stderr
    left = [*tmp_path.rglob("*.c"), *tmp_path.rglob("*.h")]
    # `collect --build-plugin` compiles them where the job runs.
    assert {path.parent.name for path in left} == {"nccl_plugin"}
