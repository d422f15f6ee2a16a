"""One call from admission to settlement; knows wire families only through `adapters.family`."""
