"""Models as a member sees them."""
