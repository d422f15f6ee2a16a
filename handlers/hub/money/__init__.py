"""The wallet and its statement."""
