"""Which channel a call goes to: health, breakers, plan, affinity, probes."""
