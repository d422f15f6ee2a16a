"""What upstreams say when they fail."""
