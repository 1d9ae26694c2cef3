"""When a job repeats itself, and which RNICs do it together."""
