"""Training jobs as an operator sees them: task files, tasks and skeletons on their topics."""
