"""The `skeletonhunter` command: one file per group of subcommands."""
