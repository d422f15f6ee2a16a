"""Usage records read for the Hub: errors by kind, and which records a live tail shows."""
