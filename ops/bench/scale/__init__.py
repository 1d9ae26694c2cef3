"""`make bench-scale`: what a cluster of 40,000 RNICs takes, and how that grows."""
