"""The sending of alerts: the messages for each kind of destination, webhooks and mail. Blocking."""
