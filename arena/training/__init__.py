"""Simulated training jobs whose collectives hang or are slow, and what is said of them."""
