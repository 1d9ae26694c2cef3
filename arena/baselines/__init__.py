"""Published methods on the same records as ours, and the interface for further diagnosers."""
