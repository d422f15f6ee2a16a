"""Data that the relay reads from memory: models, groups, channels, API keys."""
