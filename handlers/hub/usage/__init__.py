"""Usage: lists and sums of calls, the page of one call."""
