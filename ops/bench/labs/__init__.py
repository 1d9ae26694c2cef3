"""`make bench-labs`: the suite of faults in every kind of lab."""
