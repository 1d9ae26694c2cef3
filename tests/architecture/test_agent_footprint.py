"""What an agent process loads and weighs, seen from outside: it shares its host with a job."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# None of these is needed to probe; each costs 1 to 60 MB.
FORBIDDEN = (
    "numpy",
    "scipy",
    "polars",
    "faust",
    "aiokafka",
    "pydantic",
    "typer",
    "rich",
    "asyncio",
    "ssl",
    "urllib.request",
    "http",
    "email",
    "cramjam",
    "_hashlib",
    "_bz2",
    "_lzma",
    "importlib.resources",
    # With `inspect`, where a dataclass has no docstring, and `traceback`: see probers/memory.py.
    "ast",
    "tokenize",
    "confluent_kafka",
    "confluent_kafka.admin",
    "ops",
    # Only where [agent.overlay] wants it.
    "probers.overlay",
    # Only where an RNIC has it for transport.
    "probers.transports.rdma",
)
# As `python -m probers` does, then an agent with clients whose broker is away.
SCRIPT = """
import json, sys
from probers.memory import hide_unneeded_modules
from schemas.process.memory import use_one_arena
hide_unneeded_modules()
use_one_arena()
import probers.cli
from probers.agent import Agent
from probers.clock import SystemClock
from probers.config.settings import build_config
from schemas.kafka.connection import KafkaSettings

config = build_config({}, {}, {"host_id": "h0", "rnic": [{"rail": 0, "address": "127.0.0.1"}]})
settings = KafkaSettings(bootstrap="127.0.0.1:1")
agent = Agent(config, settings, probers.cli.make_codec(settings, probers.cli.AGENT), SystemClock())
for _ in range(20):
    agent._sleep()
    agent._work()
status = open("/proc/self/status").read() if sys.platform == "linux" else ""
rss = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
print(json.dumps({
    "modules": sorted(name for name, module in sys.modules.items() if module is not None),
    "rss_kb": int(rss[0]) if rss else None,
}))
sys.stdout.flush()
import os
os._exit(0)  # a broker that is away is not waited for
"""
# The bar for a whole agent with 40 targets is 35 MB; this one has none.
RSS_KB = 33_000


@pytest.fixture(scope="module")
def loaded() -> dict[str, object]:
    """Return what a fresh agent process has loaded, and its size."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", FORBIDDEN)
def test_an_agent_does_not_load(loaded: dict[str, object], name: str) -> None:
    """Neither by itself nor through a library."""
    modules = loaded["modules"]
    assert isinstance(modules, list)
    assert "probers.agent" in modules
    assert "confluent_kafka.cimpl" in modules
    assert name not in modules


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_agent_with_its_clients_fits_its_memory(loaded: dict[str, object]) -> None:
    """Resident memory of producer, consumer, codec and all of the agent's code."""
    rss_kb = loaded["rss_kb"]
    assert isinstance(rss_kb, int)
    assert rss_kb < RSS_KB


def test_help_teaches_and_needs_no_broker() -> None:
    """`--help` names every source of settings and shows an example."""
    done = subprocess.run(
        [sys.executable, "-m", "probers", "--help"], capture_output=True, text=True, timeout=30,
        check=True,
    )  # fmt: skip
    for part in ("[[agent.rnic]]", "SKELETONHUNTER_AGENT_", "example:", "exit codes", "SIGTERM"):
        assert part in done.stdout


def test_wrong_settings_are_one_sentence_and_exit_code_2() -> None:
    """No traceback; everything that is wrong at once."""
    done = subprocess.run(
        [sys.executable, "-m", "probers", "--bootstrap", "127.0.0.1:1", "--flows", "900",
         "--rnic", "rail=x,address=here"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for part in ("--flows=900", "rail='x'", "'here'"):
        assert part in done.stderr


def test_a_wrong_kafka_setting_is_exit_code_2_without_a_traceback(tmp_path: Path) -> None:
    """A setting that librdkafka refuses is named in its own words."""
    config = tmp_path / "agent.toml"
    config.write_text(
        '[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n"no.such.key" = "1"\n'
        '[[agent.rnic]]\nrail = 0\naddress = "127.0.0.1"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "probers", "--config", str(config)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no.such.key" in done.stderr
    assert "Traceback" not in done.stderr
