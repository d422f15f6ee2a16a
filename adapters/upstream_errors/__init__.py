"""Errors of upstreams."""
