"""`make bench-throughput`: how much the pipeline takes, part by part."""
