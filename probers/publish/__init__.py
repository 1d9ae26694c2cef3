"""Gets records to Kafka: bounded in memory, never blocking."""
