"""Who probes whom: the basic list, and the lists that follow a skeleton."""
