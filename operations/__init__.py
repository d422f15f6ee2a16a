"""The verbs that commands and the Hub share, as functions that return values.

No click, no page, no server: the caller parses and shows. Imported by commands and the Hub,
never by the relay.
"""
