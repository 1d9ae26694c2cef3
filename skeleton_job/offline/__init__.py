"""Skeletons from files of counters, without a broker."""
