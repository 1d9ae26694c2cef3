"""`make bench-resilience`: wrong clocks, absurd records, garbage, kills, floods, against bars."""
