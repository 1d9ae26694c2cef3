"""How the agent reports its health: to HTTP clients and to the service manager."""
