"""Pages for signing in and for the user's own account."""
