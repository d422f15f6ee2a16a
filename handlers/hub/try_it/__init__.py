"""Try it: a conversation with one model or two, called as a key of the user."""
