"""Apache Kafka without Docker or an installed Java: fetched, verified, started, stopped."""
