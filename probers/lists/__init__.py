"""What arrives from Kafka: ping lists and registrations of endpoints."""
