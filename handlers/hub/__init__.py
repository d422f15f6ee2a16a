"""The API Hub: the web interface and its JSON API. A second Tornado application in its own process,
which never relays a call."""
