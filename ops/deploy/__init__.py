"""Images, their configuration and their health check."""
