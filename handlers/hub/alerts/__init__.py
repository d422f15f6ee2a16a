"""Alerts: rules, destinations, and what was sent; of the gateway and of each user."""
