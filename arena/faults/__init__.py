"""What can go wrong in the cluster: kinds of fault, confounders, their effects, the truth."""
