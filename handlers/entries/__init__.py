"""The endpoints of the relay port: their handlers and the table of routes."""
