"""What the operator's side is measured by."""
