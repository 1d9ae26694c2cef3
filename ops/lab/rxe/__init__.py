"""The lab of real RDMA verbs: Soft-RoCE RNICs and routers of one emulated machine."""
