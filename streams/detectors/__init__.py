"""Detectors: pure functions of probes and windows, thresholds from stated false-alarm rates."""
