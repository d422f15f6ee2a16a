"""Pure values and checks that the rest of the store shares. Imports nothing of the store."""
