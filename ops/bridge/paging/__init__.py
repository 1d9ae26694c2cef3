"""Which faults page whom, and when: a function of the topics alone."""
