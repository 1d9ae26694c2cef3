"""A throw-away virtual machine with Soft-RoCE: real RDMA verbs where there is no RDMA NIC."""
