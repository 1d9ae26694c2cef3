"""Training jobs as network traffic: from ranks to transfers to RNIC counters, with the truth."""
