"""The choice of a channel for a call: health, breakers, plan, affinity, probes."""
