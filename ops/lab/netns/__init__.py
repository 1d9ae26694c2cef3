"""The lab of network namespaces: hosts, containers, switches of the kernel, joined by veth."""
