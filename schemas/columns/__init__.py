"""Records as columns: numpy arrays instead of one object for each record."""
