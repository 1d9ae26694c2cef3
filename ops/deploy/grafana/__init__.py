"""Dashboards for Grafana, written in code: `make dashboards` writes the JSON files beside this."""
