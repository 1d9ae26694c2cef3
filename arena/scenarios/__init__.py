"""Scenarios as data, and suites of them."""
