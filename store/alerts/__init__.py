"""Alerts: rules, what makes them fire, the outbox of messages; above all stores that it reads."""
