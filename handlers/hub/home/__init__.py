"""The home page, of users and of administrators, and what leads to it: search, the first run."""
