"""How probes travel: the protocol `base.Transport`, and the transports of `registry`."""
