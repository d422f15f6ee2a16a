"""The HTTP server of the Hub, with limits for unauthenticated clients."""
