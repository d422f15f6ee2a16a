"""Framing of streams: the ends of events, and facts that need no decoding of their data."""
