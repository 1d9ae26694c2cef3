"""What others do, on the same records: published methods, and whatever plugs in beside them."""
