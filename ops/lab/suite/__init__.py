"""Every fault that a lab has, against the verdict it must get."""
