"""Jobs, their endpoints, when their skeleton is due, and which one stands."""
