"""`make bench-accuracy`: detection, localization and skeletons in the arena."""
