"""Which components explain the bad observations and are not contradicted by the good ones."""
