"""What can be wrong with a cluster, and what to do about it."""
