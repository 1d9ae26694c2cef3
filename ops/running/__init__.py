"""Processes of the project, started together and never left behind."""
