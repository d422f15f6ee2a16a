"""What administrators change and watch."""
