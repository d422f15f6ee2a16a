"""Usage records read for the Hub: sums of calls, the page of calls, errors by kind, live tails."""
