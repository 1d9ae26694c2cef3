"""A real training job on the lab of namespaces: causes of hangs, and what is said of them."""
