"""What a process exposes for Prometheus: metrics as data, and the one module that serves them.

Each process declares its metrics in its edge and reads them from what it counts anyway. Nothing
is counted twice, and nothing that decides knows of metrics. Not for the agent: Prometheus' client
takes 24 MB; what agents count comes with their heartbeats, and the localizer exposes it.
"""
