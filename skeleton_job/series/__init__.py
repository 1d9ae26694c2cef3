"""From counter batches to byte rates: the counters of the last minutes, unwrapped and binned."""
