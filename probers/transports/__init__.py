"""How probes travel: one Protocol, and the transports that fulfil it."""
