"""Probes and traces: which 5-tuples, when, from which RNIC, and what came of them."""
