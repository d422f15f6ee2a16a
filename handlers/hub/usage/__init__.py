"""Usage: lists of calls, one call."""
