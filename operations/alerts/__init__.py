"""Sending of alerts: what each kind of destination is sent, webhooks and mail. Blocking."""
