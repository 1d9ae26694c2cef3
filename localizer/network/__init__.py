"""The network graph, the paths that 5-tuples take through it, and what traces show of them."""
