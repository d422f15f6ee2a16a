"""The state of channels: breakers, probes, sums of calls, and the status made from them."""
