"""The collector (`skeletonhunter collect`): what the ranks of jobs on this host do."""
