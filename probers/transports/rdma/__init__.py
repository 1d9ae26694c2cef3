"""Probes by RDMA verbs: unreliable datagrams between queue pairs, through pyverbs."""
