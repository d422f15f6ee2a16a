"""The client's connection and the base of all handlers."""
