"""Who waits for whom in a training job, and why: judged from what its ranks recorded."""
