"""Configuration: the table of settings, the file, the secrets. Standard library and msgspec only.

The supervisor imports this package and no other of the project except its own modules, so it has to
stay small.
"""
