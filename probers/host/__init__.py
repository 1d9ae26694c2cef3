"""What the agent reads of its host: counters, links, and the states of RNICs and host."""
