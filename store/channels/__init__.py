"""What is known of channels: breakers, probes, sums of calls, the status made of them."""
