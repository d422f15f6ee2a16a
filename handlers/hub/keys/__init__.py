"""A user's API keys, and the set-up of the clients that use them."""
