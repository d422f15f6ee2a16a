"""Copies of a whole store: what a backup holds, bringing it back, moving to another database.

`journals.py` reads journals that are being written, `snapshot.py` copies a database while it is
used, `restored.py` makes a copy whole again, `transfer.py` moves rows from one database to another.
Highest room of the store beside `upkeep`; for commands.
"""
