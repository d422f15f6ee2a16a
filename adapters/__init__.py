"""Wire formats: pure functions and small state machines, bytes in, bytes out.

Nothing here opens a socket, reads a clock or knows Tornado, pycurl or peewee. Handlers and the
relay import this package; it imports itself only.
"""
