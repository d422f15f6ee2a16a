"""The verbs that commands and the Hub share, as functions that return values.

No click, no page, no server: whoever calls parses and shows. Imported by commands and the Hub,
never by the relay.
"""
