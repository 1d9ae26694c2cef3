"""What the agent tells: records of the contract, bounded and never blocking."""
