"""What each kind of target is sent."""
