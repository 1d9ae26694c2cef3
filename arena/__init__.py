"""A simulated training cluster with full ground truth: the instrument that checks the pipeline."""
