"""An HTTP/1.1 server: connections of clients, and a protocol for the handlers of requests."""
