"""`make bench-agent` and `make soak`: what one agent costs its host."""
