"""Who may do what on the cluster: least privilege, derived from the topic registry."""
