"""Whom to probe and when: rounds, pacing, traces."""
