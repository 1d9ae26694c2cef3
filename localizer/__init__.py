"""The localizer: anomalies, topology and flow tables to fault verdicts."""
