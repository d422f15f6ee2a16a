"""The scripted vendor of responses."""
