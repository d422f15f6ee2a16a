"""The ops port: a small HTTP server and who may ask it. Standard library and conf only."""
