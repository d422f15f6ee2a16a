"""What a service manager hears of the gateway. Part of the supervisor: standard library only."""
