"""The agent on each host: probes, traces, counters, heartbeat."""
