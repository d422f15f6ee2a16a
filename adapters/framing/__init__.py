"""Where the events of a stream end, and what their bytes alone tell."""
