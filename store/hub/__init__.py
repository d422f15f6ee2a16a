"""Access to the Hub: passwords, sessions, API tokens."""
