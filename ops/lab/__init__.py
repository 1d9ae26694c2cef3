"""The loopback lab: a userspace leaf-spine fabric, real agents, a training job, faults."""
