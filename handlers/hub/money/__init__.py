"""The wallet."""
