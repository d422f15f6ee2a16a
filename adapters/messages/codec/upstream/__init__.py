"""The codec of the family's upstreams: requests out, answers in."""
