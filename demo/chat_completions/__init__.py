"""The scripted vendor of chat_completions."""
