"""Results of diagnosers on a suite: kept as JSON lines, shown as one page."""
