"""A simulated cluster in front of real Kafka and the real processes."""
