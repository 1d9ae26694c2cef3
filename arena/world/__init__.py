"""The simulated cluster: fabric, hosts, overlay, latencies; nothing is broken in it yet."""
