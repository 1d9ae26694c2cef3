"""Ping lists per agent: basic pairs before anything is known, skeleton and sampled pairs later."""
