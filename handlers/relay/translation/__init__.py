"""Calls that a channel of another family serves: who can carry them, and what is sent."""
