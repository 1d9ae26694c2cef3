"""What touches Kafka, processes and the clock."""
