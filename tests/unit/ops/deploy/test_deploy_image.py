"""The agent's image and DaemonSet: what they hold is enough, is pinned, and may do no more."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from probers.agent import FLUSH_NS
from probers.config.settings import build_config
from probers.health.client import parser
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
agent = Agent(config, settings, probers.cli.make_codec(settings), SystemClock())
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
        "schemas",
        "probers",
    }


def documents() -> dict[str, dict[str, Any]]:
    """Return the objects of the DaemonSet's file by kind."""
    text = (DEPLOY / "agent.daemonset.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def pod() -> dict[str, Any]:
    """Return the pod's part."""
    found = documents()["DaemonSet"]["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def container() -> dict[str, Any]:
    """Return the only container."""
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


def test_a_pod_may_lock_memory_and_nothing_else() -> None:
    """All capabilities but one are dropped, and nothing can be written but its own folder."""
    rights = container()["securityContext"]
    assert rights["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["privileged"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostPID" not in pod()
    assert not [volume for volume in pod()["volumes"] if "hostPath" in volume]
    writable = [m["mountPath"] for m in container()["volumeMounts"] if not m.get("readOnly")]
    assert writable == ["/run/skeletonhunter"]


def test_it_runs_on_gpu_hosts_in_their_own_network() -> None:
    """RNICs and their addresses are the host's."""
    assert pod()["hostNetwork"] is True
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod()["tolerations"]
    assert container()["resources"]["requests"] == {"cpu": "50m", "memory": "64Mi"}


@pytest.mark.parametrize("name", ["livenessProbe", "readinessProbe"])
def test_probes_are_commands_of_the_image(name: str) -> None:
    """The client takes their arguments, and has ended before its time is up."""
    probe = container()[name]
    command = probe["exec"]["command"]
    assert command[:5] == ["python3", "-P", "-m", "probers", "health"]
    given = parser().parse_args(command[5:])
    assert given.live is (name == "livenessProbe")
    assert given.timeout_s < probe["timeoutSeconds"]


def test_the_settings_are_good_and_fit_the_mounts(tmp_path: Path) -> None:
    """An agent takes the example; key and socket are where volumes are."""
    settings = documents()["ConfigMap"]["data"]["node17.toml"]
    table = tomllib.loads(settings)["agent"]
    key = tmp_path / "probe.key"
    key.write_text("0" * 64)
    key.chmod(0o400)
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert table["probe_key_file"] == f"{mounts['probe-key']}/probe.key"
    environment = {e["name"]: e.get("value", "node17") for e in container()["env"]}
    environment = {k: v.replace("$(NODE_NAME)", "node17") for k, v in environment.items()}
    assert environment["SKELETONHUNTER_CONFIG"] == f"{mounts['settings']}/node17.toml"
    config = build_config({}, environment, {**table, "probe_key_file": str(key)})
    assert config.host_id == "node17"
    assert config.health is not None
    assert config.health.path == f"{mounts['run']}/agent.sock"
    assert pod()["terminationGracePeriodSeconds"] > (config.linger_ns + FLUSH_NS) / 1e9 + 5
