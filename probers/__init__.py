"""The agent on each host: probes, traces, counters, heartbeat."""

from typing import Final

# Kept by hand beside pyproject.toml (a test compares them): `importlib.metadata`
# would cost the agent 2 MB of memory to find it out.
VERSION: Final = "0.1.0"
