"""What the agent reads of its host: counters, links, states of RNICs."""
