"""Reads what training jobs record of their collectives."""
