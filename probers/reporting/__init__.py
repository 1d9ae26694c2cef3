"""Makes the records that the agent publishes from what its parts have measured."""
