"""Alerts of the gateway and of each user: rules, destinations, and sent messages."""
