"""Copies of a whole store: contents of a backup, restoring it, moving to another database.

`journals.py` reads journals that are being written, `snapshot.py` copies a database while it is in
use, `restored.py` completes a copy, `transfer.py` moves rows from one database to another. The top
layer of the store, next to `upkeep`. For commands.
"""
