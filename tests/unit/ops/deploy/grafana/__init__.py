"""Dashboards: their files are current, their expressions can be asked."""
