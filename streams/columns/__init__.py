"""Rounds and windows as columns: arrays of state, and the compiled kernels that fill them."""
