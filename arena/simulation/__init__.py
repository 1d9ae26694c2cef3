"""A cluster over time: every record that its agents and its platform write."""
