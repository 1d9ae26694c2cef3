"""The contract's topics and schemas on a cluster: planned, created, checked."""
