"""What touches Kafka, threads and the clock: the consumer, the publisher, sessions and restarts."""
