"""How the agent says that it is well: to whoever asks, and to the service manager."""
