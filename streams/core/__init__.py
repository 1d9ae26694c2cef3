"""One partition's state machine: rounds in; windows, anomalies and progress marks out."""
