"""The jobs: their endpoints and agents, when to infer a skeleton, and which skeleton is current."""
