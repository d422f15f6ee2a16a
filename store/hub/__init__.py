"""Who may use the Hub: passwords, sessions, API tokens."""
