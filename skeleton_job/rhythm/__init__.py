"""When a job iterates, and what each RNIC does in an iteration: signal processing of rates."""
