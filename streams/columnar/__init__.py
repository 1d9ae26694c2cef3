"""Rounds as bytes into columns and counts, many at a time, by compiled kernels."""
