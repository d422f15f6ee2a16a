"""The scripted vendor: the built-in demo upstream, and the upstream of the tests.

A process of its own that knows nothing of the gateway: it imports the standard library and itself,
not even the gateway's JSON code, so that a mistake there cannot hide in a vendor that shares it.
"""
