"""Pages of docs/reference/ that are written from the code: topics, kinds of fault, settings."""
