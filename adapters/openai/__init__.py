"""What the chat completions and the responses family have in common."""
