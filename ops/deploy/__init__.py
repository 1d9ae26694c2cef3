"""Images, their configuration, and the chart."""
