"""Where log lines go, and what is taken out of them first. Standard library only."""
