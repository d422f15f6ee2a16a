"""The demo vendor: the built-in upstream of `quickstart`, and the base of the tests' upstream.

A process of its own that knows nothing of the gateway: it imports the standard library and itself.
"""
