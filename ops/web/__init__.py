"""The operator's page: a server that reads topics or a recording, and the page that it serves."""
