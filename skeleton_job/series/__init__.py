"""Counters as they come from the agents, and the byte rates made from them."""
