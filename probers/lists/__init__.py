"""What arrives from Kafka: ping lists, registrations, and who probes whom."""
