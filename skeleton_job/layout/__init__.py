"""From rhythms to positions: replica groups, pipeline stages, and the skeleton they make."""
