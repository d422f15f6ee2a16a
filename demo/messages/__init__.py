"""The scripted vendor of messages."""
