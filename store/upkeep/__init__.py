"""Upkeep: periodic work on the store that one process of all nodes does, apart from any call.

`lease.py` chooses the process and stores the result of its last run. `retention.py` defines what is
created ahead and what is removed. `thread.py` runs it in a worker. The top layer of the store, next
to `copies`.
"""
