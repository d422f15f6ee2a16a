"""Keys, with the set-up of clients."""
