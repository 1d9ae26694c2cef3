"""Published CSV files of probes as rounds of the contract."""
