"""Keys and the set-up of clients."""
