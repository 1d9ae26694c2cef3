"""Benchmarks: each measures, prints figures beside their bars, writes JSON and a page."""
