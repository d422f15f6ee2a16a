"""Usage detail: each call, sums of calls, errors, the live tail, exports."""
