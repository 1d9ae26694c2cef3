"""What touches Kafka and the clock: the reader, the outbox and the service's loop."""
