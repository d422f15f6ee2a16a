"""Framing of streams: the ends of events, and what their bytes alone say."""
