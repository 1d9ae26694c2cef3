"""`make bench-pipeline`: the whole pipeline against its bars."""
