"""What both sides of the store share: pure values and checks; imports nothing of the store."""
