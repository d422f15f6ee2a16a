"""Pages of who comes in: signing in, the first run, the own account."""
