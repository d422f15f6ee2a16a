"""Configuration: the table of settings, the file, the secrets. Standard library and msgspec only.

The supervisor imports this package and nothing else of the project, so it has to stay light.
"""
