"""The packages of the code."""

PACKAGES = ("adapters", "commands", "conf", "demo", "handlers", "operations", "store")
