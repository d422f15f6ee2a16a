"""What a user sees at a glance: home, channel status, the wallet."""
