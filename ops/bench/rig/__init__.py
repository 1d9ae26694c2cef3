"""What benchmarks share: loads, reports, the cost of a process, growth over size."""
