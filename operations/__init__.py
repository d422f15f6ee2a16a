"""The verbs that commands and the Hub share, as functions that return values.

No click, no page, no server: callers parse the input and show the result. Imported by commands and
the Hub, never by the relay.
"""
