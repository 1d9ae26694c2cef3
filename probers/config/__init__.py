"""The agent's settings: flags come before the environment, and that before the TOML file."""
