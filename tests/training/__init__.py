"""Real training jobs of PyTorch over gloo, with faults, whose Flight Recorder dumps are judged."""
