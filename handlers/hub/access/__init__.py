"""Who one is: signing in and out, the first run, the account, tokens."""
