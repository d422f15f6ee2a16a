"""Upkeep: what one process of all nodes does for the store now and then, apart from any call.

`lease.py` chooses the process and keeps how its last run went, `retention.py` says what is made
ahead and what is removed, `thread.py` does it in a worker. Highest room of the store beside
`copies`.
"""
