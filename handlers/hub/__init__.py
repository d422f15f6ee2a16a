"""The API Hub: the web interface for people, and its JSON API. A second Tornado application in a
process of its own; it never relays a call."""
