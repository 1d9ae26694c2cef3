"""Which RNIC stands where in a job: blocks, stages, replica groups, and the confidence in them."""
