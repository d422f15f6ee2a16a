"""What an operator asks and does, as functions that return values: for commands and for the Hub.

No click, no page, no server: whoever calls parses and shows. Imported by commands and the Hub,
never by the relay.
"""
