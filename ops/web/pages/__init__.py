"""What each page shows: documents made of a view at a time. No Kafka, no web, no clock."""
