"""Kafka's log from outside: records read, written, shown and followed, and where groups stand."""
