"""What the relay reads in memory: models, groups, channels, API keys."""
