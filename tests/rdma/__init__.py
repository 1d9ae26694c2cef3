"""Real verbs: these tests run inside the machine with Soft-RoCE (`make test-rdma`)."""
