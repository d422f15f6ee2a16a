"""One call from admission to settlement. Knows wire families only through `adapters.family`."""
