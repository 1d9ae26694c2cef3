"""The agent's settings: flags before environment before TOML, checked all at once."""
