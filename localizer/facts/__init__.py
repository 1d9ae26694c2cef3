"""What is known now: open anomalies, live agents, registered endpoints, states, flow tables."""
