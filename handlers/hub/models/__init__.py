"""Models and their status, as users see them."""
