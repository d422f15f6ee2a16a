"""Alerts: rules, conditions, the outbox of messages. Above all other parts of the store that it
reads."""
